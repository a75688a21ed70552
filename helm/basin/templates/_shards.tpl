{{/* Names and options of the shards. */}}

{{/* How many there are. --reuse-values brings the values of an earlier chart, which had none. */}}
{{- define "basin.shards" -}}
{{- dig "count" 0 (.Values.shards | default dict) | int }}
{{- end }}

{{/* How many an autoscaler may start; 0 if there is none. */}}
{{- define "basin.mostShards" -}}
{{- $most := dig "max" 0 (.Values.shards | default dict) | int }}
{{- if and (gt $most 0) (lt $most (int (include "basin.shards" .))) }}
{{- fail "shards.max is the most shards that an autoscaler may start, and is less than shards.count: raise it, or set it to 0" }}
{{- end }}
{{- if and (gt $most 0) (eq (int (include "basin.shards" .)) 0) }}
{{- fail "shards.max is for an autoscaler, which never starts the first shard: set shards.count to the fewest shards that there should be" }}
{{- end }}
{{- $most }}
{{- end }}

{{/* Of their StatefulSet, Service and ConfigMap. Fits into a label with what Kubernetes appends. */}}
{{- define "basin.shardName" -}}
{{ include "basin.fullname" . | trunc 46 | trimSuffix "-" }}-shard
{{- end }}

{{/* With the aggregator's name they would become part of its Service. Must never change. */}}
{{- define "basin.shardSelectorLabels" -}}
app.kubernetes.io/name: {{ include "basin.name" . | trunc 57 | trimSuffix "-" }}-shard
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "basin.shardLabels" -}}
{{ include "basin.shardSelectorLabels" . }}
app.kubernetes.io/component: shard
app.kubernetes.io/part-of: basin
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ include "basin.chart" . }}
{{- end }}

{{/* What follows the name of a shard's pod in its name in the DNS. */}}
{{- define "basin.shardDomain" -}}
{{ include "basin.shardName" . }}.{{ .Release.Namespace }}.svc
{{- end }}

{{/* The name of the first shard, by which Prometheus checks the certificate of all of them. */}}
{{- define "basin.shardHost" -}}
{{ include "basin.shardName" . }}-0.{{ include "basin.shardDomain" . }}
{{- end }}

{{/* The names of the first `count` shards, as a list in JSON. `scope`: that of the chart. */}}
{{- define "basin.firstShardHosts" -}}
{{- $hosts := list }}
{{- range $i := until (int .count) }}
{{- $hosts = append $hosts (printf "%s-%d.%s" (include "basin.shardName" $.scope) $i (include "basin.shardDomain" $.scope)) }}
{{- end }}
{{- toJson $hosts }}
{{- end }}

{{/* Those that there should be. */}}
{{- define "basin.shardHosts" -}}
{{- include "basin.firstShardHosts" (dict "scope" . "count" (int (include "basin.shards" .))) }}
{{- end }}

{{/* Those that there may be, also of an autoscaler. */}}
{{- define "basin.possibleShardHosts" -}}
{{- include "basin.firstShardHosts" (dict "scope" . "count" (max (int (include "basin.shards" .)) (int (include "basin.mostShards" .)))) }}
{{- end }}

{{/* "true" if the aggregator's certificate also is the one by which shards are its clients. */}}
{{- define "basin.shardSharesCertificate" -}}
{{- if and (gt (int (include "basin.shards" .)) 0) .Values.tls.issuer.name .Values.tls.clientCertificates -}}
true
{{- end }}
{{- end }}

{{/* The Secret with which shards connect with the aggregator; empty if they need none. */}}
{{- define "basin.shardSecret" -}}
{{- $own := and .Values.tls.clientCertificates (not (include "basin.shardSharesCertificate" .)) }}
{{- if and (or .Values.auth.existingSecret $own) (not .Values.shards.existingSecret) }}
{{- fail (printf "shards need %s to connect with the aggregator: set shards.existingSecret to a Secret with %s" (ternary "a token" "a certificate" (ne .Values.auth.existingSecret "")) (ternary "token, client.crt and client.key" (ternary "token" "client.crt and client.key" (ne .Values.auth.existingSecret "")) (and $own (ne .Values.auth.existingSecret "")))) }}
{{- end }}
{{- .Values.shards.existingSecret }}
{{- end }}

{{/* The user's options without those of an aggregator alone, and the shards' own. */}}
{{- define "basin.shardConfig" -}}
{{- $shard := dict "coordinator" (include "basin.addresses" .) }}
{{- $secret := include "basin.shardSecret" . }}
{{- if include "basin.tlsSecret" . }}
{{- $_ := set $shard "ca" "/etc/basin-tls/ca.crt" }}
{{- if .Values.tls.clientCertificates }}
{{- $shared := include "basin.shardSharesCertificate" . }}
{{- $_ := set $shard "cert" (ternary "/etc/basin-tls/tls.crt" "/etc/basin-shard/client.crt" (eq $shared "true")) }}
{{- $_ := set $shard "key" (ternary "/etc/basin-tls/tls.key" "/etc/basin-shard/client.key" (eq $shared "true")) }}
{{- end }}
{{- end }}
{{- if .Values.auth.existingSecret }}
{{- $_ := set $shard "token_file" "/etc/basin-shard/token" }}
{{- end }}
{{- $given := omit (deepCopy .Values.config) "admin" "drain" "shards" "standby" "state" }}
{{- $own := include "basin.ownConfig" . | fromYaml }}
{{- $_ := set $own "shard" $shard }}
{{- $_ := set $own "drain" (dict "grace" (printf "%vs" .Values.drainSeconds)) }}
{{- mergeOverwrite (include "basin.defaultConfig" . | fromYaml) $given $own | toYaml }}
{{- end }}

{{- define "basin.shardResources" -}}
{{- include "basin.withGpus" (dict "scope" . "resources" (.Values.shards.resources | default .Values.resources)) }}
{{- end }}
