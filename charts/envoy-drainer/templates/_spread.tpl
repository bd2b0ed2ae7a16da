{{/* The constraints, each with what it is about. */}}
{{- define "envoy-drainer.topologySpreadConstraints" -}}
{{- $own := dict "labelSelector" (dict "matchLabels" (include "envoy-drainer.selector" . | fromYaml)) }}
{{- $constraints := list }}
{{- range .Values.topologySpreadConstraints }}
{{- $constraints = append $constraints (hasKey . "labelSelector" | ternary . (merge (dict) . $own)) }}
{{- end }}
{{- toYaml $constraints }}
{{- end }}
