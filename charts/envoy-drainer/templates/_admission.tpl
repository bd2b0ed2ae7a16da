{{/* Selects the namespaces for which the API server calls the webhook: those whose label has one of `values`. */}}
{{- define "envoy-drainer.namespaceSelector" -}}
matchExpressions:
  - key: envoy-drainer.dev/injection
    operator: In
    values: {{ .values | toJson }}
  - key: kubernetes.io/metadata.name
    operator: NotIn
    values:
      {{- concat (list "kube-system" .root.Release.Namespace) (.root.Values.admission.excludedNamespaces | default list) | uniq | toYaml | nindent 6 }}
  {{- if .root.Values.aks }}
  - key: control-plane
    operator: NotIn
    values: ["true"]
  - key: kubernetes.azure.com/managedby
    operator: NotIn
    values: [aks]
  {{- end }}
{{- end }}

{{/* Whether a pod requests a drainer. */}}
{{- define "envoy-drainer.asks" -}}
has(object.metadata.annotations)
&& 'envoy-drainer.dev/inject' in object.metadata.annotations
&& !(object.metadata.annotations['envoy-drainer.dev/inject'] in ['false', 'disabled'])
{{- end }}

{{/* Selects the pods in these namespaces for which the API server calls the webhook. */}}
{{- define "envoy-drainer.matchConditions" -}}
- name: asks
  expression: >-
    {{- include "envoy-drainer.asks" . | nindent 4 }}
{{ include "envoy-drainer.supportedPods" . }}
{{- end }}

{{/* Selects the pods that can have a drainer. */}}
{{- define "envoy-drainer.supportedPods" -}}
- name: not-mirror
  expression: >-
    !has(object.metadata.annotations)
    || !('kubernetes.io/config.mirror' in object.metadata.annotations)
- name: not-windows
  expression: >-
    !(has(object.spec.os) && object.spec.os.name == 'windows')
    && !(has(object.spec.nodeSelector) && 'kubernetes.io/os' in object.spec.nodeSelector
    && object.spec.nodeSelector['kubernetes.io/os'] == 'windows')
{{- end }}

{{/* Returns "true" if the ValidatingAdmissionPolicies are to be rendered, else nothing. This depends on the Kubernetes
     version rather than on the served APIs, since `helm template` only knows the former, from `--kube-version`. */}}
{{- define "envoy-drainer.hasPolicy" -}}
{{- $served := semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version }}
{{- if eq (toString .Values.policy.enabled) "auto" | ternary $served (eq (toString .Values.policy.enabled) "true") -}}
true
{{- else if not .Values.policy.acceptUnrestrictedAccount }}
{{- $why := printf "Kubernetes %s has no ValidatingAdmissionPolicy (for `helm template`, pass the cluster's version with --kube-version)" .Capabilities.KubeVersion.Version }}
{{- if eq (toString .Values.policy.enabled) "false" }}{{ $why = "policy.enabled is false" }}{{ end }}
{{- fail (printf "%s, so the webhook's service account would not be restricted to the caBundle: a holder of its token could redirect, read and change the admission requests of any object in the cluster. To accept this risk, set policy.acceptUnrestrictedAccount to true" $why) }}
{{- end }}
{{- end }}
