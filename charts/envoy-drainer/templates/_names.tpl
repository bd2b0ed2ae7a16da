{{- define "envoy-drainer.name" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Shorter than a name may be, by what the names of single objects add. */}}
{{- define "envoy-drainer.fullname" -}}
{{- $name := include "envoy-drainer.name" . }}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}
{{- .Values.fullnameOverride | default $full | trunc 58 | trimSuffix "-" }}
{{- end }}

{{- define "envoy-drainer.serviceAccount" -}}
{{- $made := include "envoy-drainer.fullname" . }}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary $made "default") }}
{{- end }}

{{/* What the API server calls the webhook, and must find in its certificate. */}}
{{- define "envoy-drainer.host" -}}
{{ include "envoy-drainer.fullname" . }}.{{ .Release.Namespace }}.svc
{{- end }}

{{/* The Secret that the certificate comes from, in either mode. */}}
{{- define "envoy-drainer.secret" -}}
{{- $full := include "envoy-drainer.fullname" . }}
{{- with .Values.certificates }}
{{- if eq .mode "self" }}
{{- $full }}-ca
{{- else if .secret.name }}
{{- .secret.name }}
{{- else if .secret.certManager.enabled }}
{{- $full }}-tls
{{- else }}
{{- fail "certificates.mode is secret: name the Secret in certificates.secret.name, or let cert-manager make it with certificates.secret.certManager.enabled" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "envoy-drainer.image" -}}
{{- $image := index .Values.image .of }}
{{- with .Values.image }}
{{- with .registry }}{{ . }}/{{ end }}{{ $image.repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- with $image.digest }}@{{ . }}{{ end }}
{{- end }}
{{- end }}
