{{- define "basin.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* How many aggregators there are, of which one leads. --reuse-values brings the values of an earlier
chart, which had no such number. */}}
{{- define "basin.replicas" -}}
{{- .Values.replicaCount | default 1 | int }}
{{- end }}

{{/* "true" if some stand by; else empty. */}}
{{- define "basin.standby" -}}
{{- if gt (int (include "basin.replicas" .)) 1 -}}
{{- if .Values.persistence.enabled }}
{{- fail "persistence.enabled is for one aggregator: with replicaCount, a new leader asks the workers instead of the file of members. Disable it" }}
{{- end -}}
true
{{- end }}
{{- end }}

{{/* What decides which of several aggregators leads: "kubernetes", "etcd", or empty for one alone. */}}
{{- define "basin.authority" -}}
{{- if include "basin.standby" . -}}
{{- dig "authority" "kubernetes" (.Values.standby | default dict) }}
{{- end }}
{{- end }}

{{/* The options by which aggregators agree on a leader. */}}
{{- define "basin.standbyConfig" -}}
{{- if eq (include "basin.authority" .) "etcd" }}
{{- $etcd := dig "etcd" dict .Values.standby }}
{{- if not $etcd.endpoints }}
{{- fail "standby.authority is etcd, and standby.etcd.endpoints is empty: set it to the addresses of its members, host:port" }}
{{- end }}
{{- if not (or $etcd.existingSecret (dig "grpc" "insecure" false .Values.config)) }}
{{- fail "without TLS, any peer between the aggregators and etcd could take the lead: set standby.etcd.existingSecret to a Secret with ca.crt. If you trust the network, set config.grpc.insecure to true" }}
{{- end }}
{{- if and (not $etcd.existingSecret) (or $etcd.clientCertificate $etcd.user) }}
{{- fail "standby.etcd.clientCertificate and standby.etcd.user are keys of a Secret: set standby.etcd.existingSecret" }}
{{- end }}
authority: {{ printf "etcd:%s%s" (join "," $etcd.endpoints) (include "basin.etcdKey" .) }}
{{- if $etcd.existingSecret }}
etcd_ca: /etc/basin-etcd/ca.crt
{{- if $etcd.clientCertificate }}
etcd_cert: /etc/basin-etcd/tls.crt
etcd_key: /etc/basin-etcd/tls.key
{{- end }}
{{- if $etcd.user }}
etcd_user_file: /etc/basin-etcd/user
{{- end }}
{{- end }}
{{- else }}
authority: {{ printf "kubernetes:%s/%s" .Release.Namespace (include "basin.lease" .) }}
{{- end }}
{{- end }}

{{/* The key of etcd that names the leader. Releases of one cluster do not share it. */}}
{{- define "basin.etcdKey" -}}
{{ dig "etcd" "key" "" .Values.standby | default (printf "/basin/%s/%s/leader" .Release.Namespace (include "basin.fullname" .)) }}
{{- end }}

{{/* The Secret for etcd, or empty. */}}
{{- define "basin.etcdSecret" -}}
{{- if eq (include "basin.authority" .) "etcd" -}}
{{ dig "etcd" "existingSecret" "" .Values.standby }}
{{- end }}
{{- end }}

{{/* The Lease that names the leader. */}}
{{- define "basin.lease" -}}
{{ include "basin.fullname" . }}-leader
{{- end }}

{{/* The pod is named this plus "-0", which must fit into a label. */}}
{{- define "basin.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains (include "basin.name" .) .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "basin.name" .) | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Must never change: a StatefulSet cannot be upgraded to other selector labels. */}}
{{- define "basin.selectorLabels" -}}
app.kubernetes.io/name: {{ include "basin.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "basin.labels" -}}
{{ include "basin.selectorLabels" . }}
app.kubernetes.io/component: aggregator
app.kubernetes.io/part-of: basin
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ include "basin.chart" . }}
{{- end }}

{{- define "basin.chart" -}}
{{- printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The labels of the pod of `helm test`. With the aggregator's name it would become part of its Service. */}}
{{- define "basin.testLabels" -}}
app.kubernetes.io/name: {{ include "basin.name" . | trunc 58 | trimSuffix "-" }}-test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "basin.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "basin.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{/* What follows the name of a pod in its name in the DNS. */}}
{{- define "basin.domain" -}}
{{ include "basin.fullname" . }}.{{ .Release.Namespace }}.svc
{{- end }}

{{/* The name by which workers find the first pod. */}}
{{- define "basin.host" -}}
{{ include "basin.fullname" . }}-0.{{ include "basin.domain" . }}
{{- end }}

{{/* The names of all pods, with spaces between. */}}
{{- define "basin.hosts" -}}
{{- $hosts := list }}
{{- range $i := until (int (include "basin.replicas" .)) }}
{{- $hosts = append $hosts (printf "%s-%d.%s" (include "basin.fullname" $) $i (include "basin.domain" $)) }}
{{- end }}
{{- join " " $hosts }}
{{- end }}

{{/* BASIN_ADDRESS of workers. */}}
{{- define "basin.addresses" -}}
{{- $addresses := list }}
{{- range $host := splitList " " (include "basin.hosts" .) }}
{{- $addresses = append $addresses (printf "%s:%v" $host $.Values.ports.grpc) }}
{{- end }}
{{- join "," $addresses }}
{{- end }}

{{/* The Secret with the certificate; empty without TLS. */}}
{{- define "basin.tlsSecret" -}}
{{- if .Values.tls.issuer.name -}}
{{- if .Values.tls.existingSecret }}
{{- fail "tls.existingSecret and tls.issuer.name are two certificates: set only one of them" }}
{{- end -}}
{{ include "basin.fullname" . }}-tls
{{- else -}}
{{ .Values.tls.existingSecret }}
{{- end }}
{{- end }}

{{- define "basin.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default (printf "%s%s" .Chart.AppVersion (ternary "-cuda" "" .Values.gpu.enabled)) }}
{{- end }}
{{- end }}

{{/* The user's resources, and the GPUs. */}}
{{- define "basin.resources" -}}
{{- include "basin.withGpus" (dict "scope" . "resources" .Values.resources) }}
{{- end }}

{{- define "basin.withGpus" -}}
{{- $resources := deepCopy .resources }}
{{- $gpu := .scope.Values.gpu }}
{{- if $gpu.enabled }}
{{- $_ := set $resources.limits $gpu.resource $gpu.count }}
{{- end }}
{{- toYaml $resources }}
{{- end }}

{{/* "https" if the port for probes and metrics has TLS, else "http". */}}
{{- define "basin.httpScheme" -}}
{{- /* --reuse-values brings the values of an earlier chart, which had no tls.http. */}}
{{- if dig "http" "enabled" false .Values.tls -}}
{{- if not (include "basin.tlsSecret" .) }}
{{- fail "tls.http.enabled needs a certificate: set tls.existingSecret or tls.issuer.name" }}
{{- end -}}
https
{{- else -}}
{{- if dig "http" "clientCertificates" false .Values.tls }}
{{- fail "tls.http.clientCertificates needs tls.http.enabled" }}
{{- end -}}
http
{{- end }}
{{- end }}

{{/* For a kubelet, which does not check the certificate. */}}
{{- define "basin.probeScheme" -}}
{{- if eq (include "basin.httpScheme" .) "https" -}}
, scheme: HTTPS
{{- end }}
{{- end }}

{{- define "basin.httpConfig" -}}
listen: {{ printf "%s:%v" .Values.listenHost .Values.ports.http | quote }}
{{- if eq (include "basin.httpScheme" .) "https" }}
tls_cert: /etc/basin-tls/tls.crt
tls_key: /etc/basin-tls/tls.key
{{- if .Values.tls.http.clientCertificates }}
tls_client_ca: /etc/basin-tls/ca.crt
{{- end }}
{{- end }}
{{- end }}

{{/* How a monitor scrapes, as the one entry of its list. The arguments are the chart's scope, the name
of the monitor's values, and for shards `shards`. */}}
{{- define "basin.scrape" -}}
{{- $own := index .scope.Values .monitor -}}
- port: http
  path: /metrics
  interval: {{ $own.interval }}
{{- if eq (include "basin.httpScheme" .scope) "https" }}
{{- if and .scope.Values.tls.http.clientCertificates (not $own.tlsConfig) }}
{{- fail (printf "tls.http.clientCertificates refuses a Prometheus without a certificate: set %s.tlsConfig" .monitor) }}
{{- end }}
  scheme: https
  tlsConfig:
  {{- if $own.tlsConfig }}
    {{- toYaml $own.tlsConfig | nindent 4 }}
  {{- else }}
    ca:
      secret:
        name: {{ include "basin.tlsSecret" .scope }}
        key: ca.crt
    serverName: {{ ternary (include "basin.shardHost" .scope) (include "basin.host" .scope) (hasKey . "shards") }}
  {{- end }}
{{- end }}
{{- if hasKey . "shards" }}
  # The rules and dashboards select shards by this label.
  relabelings:
    - targetLabel: job
      replacement: basin-shard
{{- end }}
{{- end }}

{{/* The port of operators, or "none". */}}
{{- define "basin.adminPort" -}}
{{- dig "admin" "listen" "127.0.0.1:29602" .Values.config | splitList ":" | last }}
{{- end }}

{{/* The user's options, overridden by those that must agree with the rest of the pod. */}}
{{- define "basin.config" -}}
{{- $tls := include "basin.tlsSecret" . }}
{{- $peers := or .Values.auth.existingSecret (and $tls .Values.tls.clientCertificates) }}
{{- if not (or (dig "grpc" "insecure" false .Values.config) (and $tls $peers)) }}
{{- fail "any peer that reaches the aggregator could read and change gradients: set tls.existingSecret or tls.issuer.name, and auth.existingSecret or tls.clientCertificates. If you trust the network, set config.grpc.insecure to true" }}
{{- end }}
{{- $admin := include "basin.adminPort" . }}
{{- $ports := list (toString .Values.ports.grpc) (toString .Values.ports.http) $admin }}
{{- if ne (len (uniq $ports)) 3 }}
{{- fail (printf "the aggregator needs three ports, but ports.grpc is %s, ports.http is %s, and that of operators is %s (config.admin.listen): choose different ones" (index $ports 0) (index $ports 1) $admin) }}
{{- end }}
{{- $own := include "basin.ownConfig" . | fromYaml }}
{{- $_ := set $own "state" (dict "file" "/var/lib/basin/members") }}
{{- $_ := set $own "drain" (dict "grace" (printf "%vs" .Values.drainSeconds)) }}
{{- if include "basin.standby" . }}
{{- $_ := set $own "state" (dict "file" "none") }}
{{- $_ := set $own "standby" (include "basin.standbyConfig" . | fromYaml) }}
{{- end }}
{{- mergeOverwrite (include "basin.defaultConfig" . | fromYaml) (deepCopy .Values.config) $own | toYaml }}
{{- end }}

{{/* Options of aggregator and shards that the user may override. */}}
{{- define "basin.defaultConfig" -}}
{{- if .Values.gpu.enabled }}
reduce:
  device: cuda
{{- end }}
{{- end }}

{{/* Options of aggregator and shards that must agree with the rest of their pods. */}}
{{- define "basin.ownConfig" -}}
{{- $own := dict
  "grpc" (dict "listen" (printf "%s:%v" .Values.listenHost .Values.ports.grpc))
  "http" (include "basin.httpConfig" . | fromYaml) }}
{{- if include "basin.tlsSecret" . }}
{{- $_ := set $own "tls" (dict "cert" "/etc/basin-tls/tls.crt" "key" "/etc/basin-tls/tls.key") }}
{{- if .Values.tls.clientCertificates }}
{{- $_ := set $own.tls "client_ca" "/etc/basin-tls/ca.crt" }}
{{- end }}
{{- end }}
{{- if .Values.auth.existingSecret }}
{{- $_ := set $own "auth" (dict "file" "/etc/basin-auth/grants") }}
{{- end }}
{{- toYaml $own }}
{{- end }}
