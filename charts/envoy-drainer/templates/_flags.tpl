{{/* The flags for one group of values. */}}
{{- define "envoy-drainer.flags" -}}
{{- range $key, $value := . }}
{{- /* As JSON, since Go prints large numbers in scientific notation. */}}
- {{ kindIs "string" $value | ternary $value (toJson $value) | printf "--%s=%s" (kebabcase $key) | quote }}
{{- end }}
{{- end }}

{{/* The arguments of the webhook's container. */}}
{{- define "envoy-drainer.args" -}}
{{- $drainer := omit .Values.drainer "logLevel" }}
{{- $_ := set $drainer "drainerLogLevel" .Values.drainer.logLevel }}
{{- if eq "false" (toString .Values.drainer.idleExit) }}
{{- /* YAML 1.1 parses `off` without quotes as false. */}}
{{- $_ := set $drainer "idleExit" "off" }}
{{- end -}}
- serve
- --listen=[::]:{{ .Values.port }}
- --health-listen=[::]:{{ .Values.healthPort }}
- --metrics-listen=[::]:{{ .Values.metricsPort }}
{{- with .Values.drainerAPI }}
{{- if .enabled }}
- --drainer-api-listen=[::]:{{ .port }}
- --drainer-api-address={{ include "envoy-drainer.host" $ }}:8443
{{- /* The kubelet's variable for the Service, since not every pod can resolve the name. */}}
- --drainer-api-ip=$({{ include "envoy-drainer.fullname" $ | upper | replace "-" "_" }}_SERVICE_HOST)
- --drainer-api-replacement={{ .replacement }}
- --drainer-api-reports={{ .reports }}
{{- end }}
{{- end }}
- --image={{ include "envoy-drainer.image" (merge (dict "of" "drainer") .) }}
- --webhook-configuration={{ include "envoy-drainer.configuration" . }}
{{- if eq .Values.certificates.mode "self" }}
- --ca-secret={{ include "envoy-drainer.secret" . }}
- --tls-name={{ include "envoy-drainer.host" . }}
{{- include "envoy-drainer.flags" .Values.certificates.self }}
{{- else }}
- --tls-secret={{ include "envoy-drainer.secret" . }}
- --tls-name={{ include "envoy-drainer.host" . }}
{{- end }}
{{- include "envoy-drainer.flags" (pick .Values.certificates "caActivationDelay") }}
{{- with .Values.admission.excludedNamespaces }}
- --excluded-namespaces={{ join "," . }}
{{- end }}
{{- if .Values.openshift }}
- --openshift
{{- end }}
{{- if .Values.webhook.clientCA }}
- --client-ca={{ include "envoy-drainer.clientCAFolder" . }}/ca.crt
{{- end }}
{{- include "envoy-drainer.flags" (omit .Values.webhook "clientCA") }}
{{- include "envoy-drainer.flags" $drainer }}
{{- end }}

{{/* The mount path of the ConfigMap with the client CA. */}}
{{- define "envoy-drainer.clientCAFolder" -}}
/etc/envoy-drainer/client-ca
{{- end }}
