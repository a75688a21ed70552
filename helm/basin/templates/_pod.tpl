{{/* What the pods of aggregators and of shards have in common. */}}

{{/* Where a pod may run, and from where its image comes. Part of the spec of a pod, as is the next one. */}}
{{- define "basin.podPlace" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if and .Values.gpu.enabled .Values.gpu.runtimeClassName }}
runtimeClassName: {{ .Values.gpu.runtimeClassName }}
{{- end }}
{{- if or .Values.tolerations .Values.gpu.enabled }}
tolerations:
  {{- with .Values.tolerations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- if .Values.gpu.enabled }}
  # Nodes with GPUs are commonly tainted with the name of the resource.
  - key: {{ .Values.gpu.resource }}
    operator: Exists
    effect: NoSchedule
  {{- end }}
{{- end }}
{{- end }}

{{- define "basin.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{/* Part of a container, as are the next ones. */}}
{{- define "basin.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{- define "basin.portsAndLife" -}}
ports:
  - name: grpc
    containerPort: {{ .Values.ports.grpc }}
  - name: http
    containerPort: {{ .Values.ports.http }}
startupProbe:
  httpGet: {path: /livez, port: http{{ include "basin.probeScheme" . }}}
  periodSeconds: 1
  failureThreshold: 60
# Checks the event loop, not the progress of rounds: a slow trainer must not restart it.
livenessProbe:
  httpGet: {path: /livez, port: http{{ include "basin.probeScheme" . }}}
  # A loop that does not answer cannot drain either, so there is nothing to wait for.
  terminationGracePeriodSeconds: 5
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
{{- end }}

{{- define "basin.secretMounts" -}}
{{- if include "basin.tlsSecret" . }}
- name: tls
  mountPath: /etc/basin-tls
  readOnly: true
{{- end }}
{{- if .Values.auth.existingSecret }}
- name: auth
  mountPath: /etc/basin-auth
  readOnly: true
{{- end }}
{{- end }}

{{/* Part of the volumes of a pod. */}}
{{- define "basin.secretVolumes" -}}
{{- if or (include "basin.tlsSecret" .) .Values.auth.existingSecret }}
# Whole folders, because Kubernetes updates only those when a Secret changes.
{{- end }}
{{- with include "basin.tlsSecret" . }}
- name: tls
  secret:
    secretName: {{ . }}
{{- end }}
{{- with .Values.auth.existingSecret }}
- name: auth
  secret:
    secretName: {{ . }}
{{- end }}
{{- end }}

{{/* Who may reach the ports: the rules of a NetworkPolicy. */}}
{{- define "basin.ingress" -}}
{{- with .Values.networkPolicy.trainers }}
- from:
    {{- toYaml . | nindent 4 }}
  ports:
    - port: grpc
{{- end }}
- from:
    # The pod of `helm test`.
    - podSelector:
        matchLabels:
          {{- include "basin.testLabels" . | nindent 10 }}
    {{- with .Values.networkPolicy.monitoring }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - port: http
{{- end }}

{{/* Part of each container of `helm test`. */}}
{{- define "basin.testContainer" -}}
resources:
  requests:
    cpu: 10m
    memory: 64Mi
    ephemeral-storage: 16Mi
  limits:
    memory: 64Mi
    ephemeral-storage: 16Mi
{{ include "basin.containerSecurity" . }}
{{- end }}
