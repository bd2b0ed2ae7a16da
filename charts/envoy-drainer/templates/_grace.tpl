{{/* Seconds that a replica has for its end: to serve on, then 100 in which the API server lets its idle
     connections go, 5 for what is in flight and 5 to spare. Of Helm's functions only those that move a date
     read a duration. */}}
{{- define "envoy-drainer.grace" -}}
{{- $delay := .Values.webhook.shutdownDelay | default "0s" }}
{{- $delay := toDate "2006-01-02Z07:00" "1970-01-01Z" | mustDateModify $delay | unixEpoch | int }}
{{- add $delay 110 }}
{{- end }}
