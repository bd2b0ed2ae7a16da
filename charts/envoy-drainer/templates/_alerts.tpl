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
