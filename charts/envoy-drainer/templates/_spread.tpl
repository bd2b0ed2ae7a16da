{{/* The topology spread constraints. Those without a `labelSelector` get that of the webhook's pods. */}}
{{- define "envoy-drainer.topologySpreadConstraints" -}}
{{- $own := dict "labelSelector" (dict "matchLabels" (include "envoy-drainer.selector" . | fromYaml)) }}
{{- $constraints := list }}
{{- range .Values.topologySpreadConstraints }}
{{- $default := hasKey . "labelSelector" | ternary dict $own }}
{{- $constraints = append $constraints (merge (dict) . $default) }}
{{- end }}
{{- toYaml $constraints }}
{{- end }}
