{{/* The rules of rules/alerts.yaml, as `prometheusRule.alerts` sets them. */}}
{{- define "envoy-drainer.alerts" -}}
{{- $rules := list }}
{{- range (first (.Files.Get "rules/alerts.yaml" | fromYaml).groups).rules }}
{{- $rule := . }}
{{- with index $.Values.prometheusRule.alerts .alert }}
{{- if .enabled }}
{{- $_ := set $rule "for" .for }}
{{- $_ := set $rule.labels "severity" .severity }}
{{- if hasKey . "threshold" }}
{{- /* The last number of the expression. As JSON, since Go prints large numbers in scientific notation. */}}
{{- $_ := set $rule "expr" (regexReplaceAll "[0-9]+\\s*$" $rule.expr (toJson .threshold)) }}
{{- end }}
{{- $_ := set $rule "expr" (replace "requests_in_flight)" (printf "requests_in_flight{namespace=%q})" $.Release.Namespace) $rule.expr) }}
{{- if $.Values.drainerAPI.namespaceMetrics }}
{{- /* A series appears with the first cut in its namespace, which `increase` alone would miss. */}}
{{- $cuts := printf "((%[1]s unless %[1]s offset 15m and on (job, instance) up offset 15m) or increase(%[1]s[15m]))" "envoy_drainer_namespace_drain_cuts_total" }}
{{- $_ := set $rule "expr" (replace "by (what) (increase(envoy_drainer_drain_cuts_total[15m]))" (printf "by (namespace, what) %s" $cuts) $rule.expr) }}
{{- end }}
{{- with $.Values.prometheusRule.runbookBaseURL }}
{{- $_ := set $rule.annotations "runbook_url" (printf "%s/%s" (trimSuffix "/" .) $rule.annotations.runbook_url) }}
{{- else }}
{{- $_ := unset $rule.annotations "runbook_url" }}
{{- end }}
{{- $rules = append $rules $rule }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml $rules }}
{{- end }}
