{{/* The labels that select the webhook's pods. They must not change, since a Deployment's selector is immutable. */}}
{{- define "envoy-drainer.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* The labels of every object. */}}
{{- define "envoy-drainer.labels" -}}
{{- $own := include "envoy-drainer.selector" . | fromYaml }}
{{- $_ := set $own "app.kubernetes.io/version" .Chart.AppVersion }}
{{- $_ := set $own "app.kubernetes.io/managed-by" .Release.Service }}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_") }}
{{- toYaml (merge $own (.Values.commonLabels | default dict)) }}
{{- end }}

{{/* The metadata of an object. Parameters: `root`, the root context; optionally `name`, or else a `suffix` to append to
     the full name; `labels` and `annotations` to add; `namespace`, if it is another than the release's; and `global`, true
     for a cluster-scoped object. */}}
{{- define "envoy-drainer.metadata" -}}
metadata:
  name: {{ .name | default (printf "%s%s" (include "envoy-drainer.fullname" .root) (.suffix | default "")) | quote }}
  {{- if not .global }}
  namespace: {{ .namespace | default .root.Release.Namespace | quote }}
  {{- end }}
  labels:
    {{- merge (include "envoy-drainer.labels" .root | fromYaml) (.labels | default dict) | toYaml | nindent 4 }}
  {{- with merge (dict) (.annotations | default dict) (.root.Values.commonAnnotations | default dict) }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
