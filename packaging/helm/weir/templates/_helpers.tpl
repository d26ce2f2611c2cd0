{{- define "weir.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "weir.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "weir.selector" . }}
{{- end -}}

{{- define "weir.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "weir.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "weir.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .Values.securityContext.runAsUser }}
runAsGroup: {{ .Values.securityContext.runAsGroup }}
fsGroup: {{ .Values.securityContext.runAsGroup }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "weir.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "weir.routerConfig" -}}
{{- $router := .Values.router -}}
# Made by the chart from its values.
[store]
size = {{ $router.store | quote }}

[faces]
unix = "/run/weir/nfd.sock"
udp = ["0.0.0.0:{{ $router.port }}"]
tcp = ["0.0.0.0:{{ $router.port }}"]
# The network of pods has no multicast.
multicast = {{ ternary "auto" "none" $router.hostNetwork | quote }}
{{- range $router.faces }}

[[face]]
uri = {{ .uri | quote }}
{{- with .routes }}
routes = {{ toJson . }}
{{- end }}
{{- if hasKey . "cost" }}
cost = {{ .cost | int }}
{{- end }}
{{- end }}
{{- if ne $router.disk.type "none" }}

[[disk]]
path = "/var/lib/weir/store"
size = {{ $router.disk.size | quote }}
{{- end }}
{{- if $router.controller.urls }}

# WEIR_ROUTER_NAME is the name of the router.
[controller]
url = {{ toJson $router.controller.urls }}
{{- if $router.controller.tokenSecret }}
token_file = "/etc/weir/token"
{{- end }}
{{- if $router.controller.caSecret }}
ca = "/etc/weir/controller/ca.crt"
{{- end }}
insecure = {{ $router.controller.insecure }}
state_file = "/run/weir/configuration"
{{- end }}

[metrics]
address = "0.0.0.0:{{ $router.metricsPort }}"
{{- with $router.extraConfig }}

{{ . | trim }}
{{- end }}
{{- end -}}

{{- define "weir.controllerConfig" -}}
{{- $controller := .Values.controller -}}
# Made by the chart from its values.
listen = "0.0.0.0:{{ $controller.port }}"
{{- if eq $controller.database.type "postgres" }}
database = {{ toJson (required "set controller.database.urls to the servers of the database" $controller.database.urls) }}
{{- else }}
database = "/var/lib/weir/controller.db"
{{- end }}
{{- if $controller.tls.secret }}
tls_certificate = "/etc/weir/tls/tls.crt"
tls_key = "/etc/weir/tls/tls.key"
{{- else if not $controller.insecure }}
{{- fail "set controller.tls.secret to a Secret with tls.crt and tls.key, or controller.insecure to true in a trusted network" }}
{{- end }}
insecure = {{ $controller.insecure }}
{{- with $controller.extraConfig }}

{{ . | trim }}
{{- end }}
{{- end -}}
