{{- define "federator.image" -}}
{{ with .root.Values.image.registry }}{{ . | trimSuffix "/" }}/{{ end }}federator-{{ .role }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end -}}

{{- define "federator.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "federator.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "federator.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "federator.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Where the dispatcher is reached in the cluster. */}}
{{- define "federator.dispatcherUrl" -}}
{{ ternary "https" "http" (ne .Values.dispatcher.tlsSecret "") }}://federator-dispatcher.{{ .Release.Namespace }}.svc:7070
{{- end -}}

{{/* The namespaces of jobs' pods, as JSON: those of teams, which the site file names, are there already. */}}
{{- define "federator.homes" -}}
{{- prepend (values (dig "kube" "namespaces" dict .Values.agent.site) | sortAlpha | uniq) .Values.agent.jobsNamespace | uniq | toJson -}}
{{- end }}
