{{/* The termination grace period of the webhook's pods, in seconds: the shutdown delay, 100 s in which API servers
     close their idle connections, 5 s for requests in flight, and a margin of 5 s. The delay is added to a date, since
     only Helm's date functions parse a duration. */}}
{{- define "envoy-drainer.grace" -}}
{{- $delay := toDate "2006-01-02Z07:00" "1970-01-01Z" | mustDateModify .Values.webhook.shutdownDelay | unixEpoch | int }}
{{- add $delay 110 }}
{{- end }}
