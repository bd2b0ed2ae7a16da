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
{{- $suffix := eq .Values.certificates.mode "self" | ternary "ca" "tls" }}
{{- .Values.certificates.secret.name | default (printf "%s-%s" (include "envoy-drainer.fullname" .) $suffix) }}
{{- end }}

{{/* The reference of an image: the one of `.Values.image` that `of` names. */}}
{{- define "envoy-drainer.image" -}}
{{- $image := index .Values.image .of }}
{{- with .Values.image }}
{{- $.Values.global.imageRegistry | default .registry }}/{{ $image.repository }}:{{ .tag | default $.Chart.AppVersion }}
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

{{/* The security context of the webhook's container. OpenShift assigns the user and the group. */}}
{{- define "envoy-drainer.securityContext" -}}
{{- $context := .Values.securityContext | default dict }}
{{- .Values.openshift | ternary (omit $context "runAsUser" "runAsGroup") $context | toYaml }}
{{- end }}
