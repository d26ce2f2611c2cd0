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

{{- /* The URLs of the values, or else those of the controllers of this chart. */ -}}
{{- define "weir.controllerUrls" -}}
{{- $controller := .Values.controller -}}
{{- $urls := .Values.router.controller.urls -}}
{{- if and (not $urls) $controller.enabled -}}
{{- $scheme := ternary "https" "http" (not (empty $controller.tls.secret)) -}}
{{- $name := include "weir.fullname" . -}}
{{- $count := ternary ($controller.replicas | int) 1 (eq $controller.database.type "postgres") -}}
{{- range $index := until $count -}}
{{- $host := printf "%s-controller-%d.%s-controllers.%s" $name $index $name $.Release.Namespace -}}
{{- $urls = append $urls (printf "%s://%s:%d" $scheme $host ($controller.port | int)) -}}
{{- end -}}
{{- end -}}
{{- toJson $urls -}}
{{- end -}}

{{- define "weir.routerConfig" -}}
{{- $router := .Values.router -}}
{{- $urls := include "weir.controllerUrls" . -}}
# Made by the chart from its values.
[store]
size = {{ $router.store | quote }}

[faces]
unix = "/run/weir/nfd.sock"
multicast = "none"
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
{{- with $router.strategy }}

[[strategy]]
prefix = "/"
strategy = {{ . | quote }}
{{- end }}
{{- if ne $router.disk.type "none" }}

[[disk]]
path = "/var/lib/weir/store"
size = {{ $router.disk.size | quote }}
{{- end }}
{{- if ne $urls "[]" }}

# WEIR_ROUTER_NAME is the name of the router.
[controller]
url = {{ $urls }}
{{- if $router.controller.tokenSecret }}
token_file = "/etc/weir/token"
{{- end }}
{{- if $router.controller.caSecret }}
ca = "/etc/weir/controller/ca.crt"
{{- end }}
insecure = {{ $router.controller.insecure }}
state_file = "/run/weir/configuration"
{{- end }}
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
