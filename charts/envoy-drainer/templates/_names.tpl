{{/* The full name of the release's objects. It has at most 54 characters: 63, the limit of a Service's name, less the
     9 of the longest suffix, `-cabundle`. */}}
{{- define "envoy-drainer.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name }}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}
{{- $full = .Values.fullnameOverride | default $full | replace "." "-" | trunc 54 | trimSuffix "-" }}
{{- if not (regexMatch "^[a-z]" $full) }}
{{- fail (printf "%s cannot be the name of a Service: set fullnameOverride to a name that starts with a letter" $full) }}
{{- end }}
{{- $full }}
{{- end }}

{{/* The name of the MutatingWebhookConfiguration. */}}
{{- define "envoy-drainer.configuration" -}}
{{- .Values.admission.configurationName | default (printf "zz-%s" (include "envoy-drainer.fullname" .)) }}
{{- end }}

{{/* The name of the webhook's ServiceAccount. */}}
{{- define "envoy-drainer.serviceAccount" -}}
{{- $made := include "envoy-drainer.fullname" . }}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary $made "default") }}
{{- end }}

{{/* The DNS name by which the API server calls the webhook, and for which its certificate must be valid. */}}
{{- define "envoy-drainer.host" -}}
{{ include "envoy-drainer.fullname" . }}.{{ .Release.Namespace }}.svc
{{- end }}

{{/* The name of the Secret with the CA (mode `self`) or with the certificate (mode `secret`). */}}
{{- define "envoy-drainer.secret" -}}
{{- $full := include "envoy-drainer.fullname" . }}
{{- with .Values.certificates }}
{{- if eq .mode "self" }}
{{- if or .secret.name .secret.certManager.enabled }}
{{- fail "certificates.mode is self, which does not use certificates.secret: set certificates.mode to secret, or remove certificates.secret" }}
{{- end }}
{{- $full }}-ca
{{- else if .secret.name }}
{{- .secret.name }}
{{- else if .secret.certManager.enabled }}
{{- $full }}-tls
{{- else }}
{{- fail "certificates.mode is secret: name the Secret in certificates.secret.name, or let cert-manager create it with certificates.secret.certManager.enabled" }}
{{- end }}
{{- end }}
{{- end }}

{{/* The registry of both images. */}}
{{- define "envoy-drainer.registry" -}}
{{- .Values.global.imageRegistry | default .Values.image.registry | required "image.registry is not set: set it to the registry from which nodes can pull the images. None are published yet: `make push REGISTRY=…` builds and pushes them. For nodes into which they were loaded, such as those of kind, set it to localhost" }}
{{- end }}

{{/* The reference of an image: the one of `.Values.image` that `of` names. */}}
{{- define "envoy-drainer.image" -}}
{{- $image := index .Values.image .of }}
{{- with .Values.image }}
{{- include "envoy-drainer.registry" $ }}/{{ $image.repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- with $image.digest }}@{{ . }}{{ end }}
{{- end }}
{{- end }}

{{/* The image pull Secrets of the webhook's pods, as a list of references. */}}
{{- define "envoy-drainer.pullSecrets" -}}
{{- $secrets := list }}
{{- range concat (.Values.global.imagePullSecrets | default list) (.Values.image.pullSecrets | default list) }}
{{- $secrets = append $secrets (kindIs "map" . | ternary . (dict "name" .)) }}
{{- end }}
{{- uniq $secrets | toYaml }}
{{- end }}
