{{/* A Service's name, which is the strictest: 63 characters, less the 9 of the longest suffix, `-cabundle`. */}}
{{- define "envoy-drainer.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name }}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}
{{- $full = .Values.fullnameOverride | default $full | replace "." "-" | trunc 54 | trimSuffix "-" }}
{{- if not (regexMatch "^[a-z]" $full) }}
{{- fail (printf "a Service cannot be called %s: set fullnameOverride to a name that starts with a letter" $full) }}
{{- end }}
{{- $full }}
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
{{- if or .secret.name .secret.certManager.enabled }}
{{- fail "certificates.mode is self, which has no use for certificates.secret: set certificates.mode to secret" }}
{{- end }}
{{- $full }}-ca
{{- else if or .self.caLifetime .self.leafLifetime }}
{{- fail "certificates.mode is secret, which has no use for certificates.self: set certificates.mode to self" }}
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
