{{/* The constraints, each with what it is about. */}}
{{- define "envoy-drainer.topologySpreadConstraints" -}}
{{- $own := dict "labelSelector" (dict "matchLabels" (include "envoy-drainer.selector" . | fromYaml)) }}
{{- $constraints := list }}
{{- range .Values.topologySpreadConstraints }}
{{- $about := hasKey . "labelSelector" | ternary dict $own }}
{{- $constraints = append $constraints (merge (dict) . $about) }}
{{- end }}
{{- toYaml $constraints }}
{{- end }}
