{{/* The metadata of a ServiceMonitor or PodMonitor. Parameters: `root`, the root context; `monitor`, its values. */}}
{{- define "envoy-drainer.monitorMetadata" -}}
{{- include "envoy-drainer.metadata" (dict "root" .root "labels" .monitor.labels "annotations" .monitor.annotations "namespace" .monitor.namespace) }}
{{- end }}

{{/* What a ServiceMonitor or PodMonitor selects, which may be in another namespace. */}}
{{- define "envoy-drainer.monitorSelector" -}}
selector:
  matchLabels:
    {{- include "envoy-drainer.selector" . | nindent 4 }}
namespaceSelector:
  matchNames: [{{ .Release.Namespace | quote }}]
{{- end }}

{{/* The endpoint of a ServiceMonitor or PodMonitor. The parameter is its values. */}}
{{- define "envoy-drainer.scrape" -}}
port: http
path: /metrics
interval: {{ .interval | quote }}
{{- with .scrapeTimeout }}
scrapeTimeout: {{ . | quote }}
{{- end }}
{{- with .relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
