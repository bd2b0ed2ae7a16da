{{/* The namespaces whose pods are asked about. */}}
{{- define "envoy-drainer.namespaceSelector" -}}
matchExpressions:
  - key: envoy-drainer.dev/injection
    operator: In
    values: [enabled]
  - key: kubernetes.io/metadata.name
    operator: NotIn
    values:
      {{- concat (list "kube-system" .Release.Namespace) (.Values.admission.excludedNamespaces | default list) | uniq | toYaml | nindent 6 }}
  {{- if .Values.aks }}
  - key: control-plane
    operator: NotIn
    values: ["true"]
  - key: kubernetes.azure.com/managedby
    operator: NotIn
    values: [aks]
  {{- end }}
{{- end }}

{{/* The pods among them that are asked about: the rest is not worth a call. */}}
{{- define "envoy-drainer.matchConditions" -}}
- name: asks
  expression: >-
    has(object.metadata.annotations)
    && 'envoy-drainer.dev/inject' in object.metadata.annotations
    && !(object.metadata.annotations['envoy-drainer.dev/inject'] in ['false', 'disabled'])
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

{{/* True or nothing. Helm without a cluster knows of no kinds, only of a version. */}}
{{- define "envoy-drainer.hasPolicy" -}}
{{- $known := .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy" }}
{{- if eq (toString .Values.policy.enabled) "auto" | ternary $known (eq (toString .Values.policy.enabled) "true") -}}
true
{{- end }}
{{- end }}
