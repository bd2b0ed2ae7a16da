{{/* What selects the webhook's pods; it never changes in a release's life. */}}
{{- define "envoy-drainer.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "envoy-drainer.labels" -}}
{{- $own := include "envoy-drainer.selector" . | fromYaml }}
{{- $_ := set $own "app.kubernetes.io/version" .Chart.AppVersion }}
{{- $_ := set $own "app.kubernetes.io/managed-by" .Release.Service }}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_") }}
{{- toYaml (merge $own (.Values.commonLabels | default dict)) }}
{{- end }}

{{/* Name, labels and annotations of an object. Beside the root's keys: `suffix`, `labels`, `annotations`;
     `global` for an object outside of namespaces. */}}
{{- define "envoy-drainer.metadata" -}}
metadata:
  name: {{ .name | default (printf "%s%s" (include "envoy-drainer.fullname" .root) (.suffix | default "")) | quote }}
  {{- if not .global }}
  namespace: {{ .root.Release.Namespace | quote }}
  {{- end }}
  labels:
    {{- merge (include "envoy-drainer.labels" .root | fromYaml) (.labels | default dict) | toYaml | nindent 4 }}
  {{- with merge (dict) (.annotations | default dict) (.root.Values.commonAnnotations | default dict) }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
