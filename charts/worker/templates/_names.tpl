{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{- define "worker.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "worker.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "worker.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "worker.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "worker.selector" -}}
app.kubernetes.io/name: {{ include "worker.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "worker.labels" -}}
{{ include "worker.selector" . }}
app.kubernetes.io/component: worker
app.kubernetes.io/part-of: atoll
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "worker.image" -}}
{{- with .Values.image.registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}

{{/* A digest is that of one image, so it is left out of another's name. */}}
{{- define "worker.sandboxd" -}}
{{- if .Values.sandboxd.image }}{{ .Values.sandboxd.image }}{{ else }}
{{- with .Values.image.registry }}{{ trimSuffix "/" . }}/{{ end }}
{{- with dir .Values.image.repository }}{{ if ne . "." }}{{ . }}/{{ end }}{{ end -}}
atoll-sandboxd:{{ default .Chart.AppVersion (.Values.image.tag | splitList "@" | first) }}
{{- end }}
{{- end }}

{{- define "worker.tlsSecret" -}}
{{- default (printf "%s-tls" (include "worker.fullname" .)) .Values.tls.secretName }}
{{- end }}

{{/* Whether replicas have a certificate, by which they know each other: the one for the hub, or one of their own. */}}
{{- define "worker.peers" -}}
{{- if and (not .Values.hosted.enabled) (or .Values.hub.address .Values.tls.secretName .Values.tls.certManager.enabled) }}true{{ end }}
{{- end }}

{{/* Whether the hub issues the certificate, to a cluster that joins by an invitation. */}}
{{- define "worker.issued" -}}
{{- $invited := or .Values.hub.token .Values.hub.tokenSecret }}
{{- $own := or .Values.tls.secretName .Values.tls.certManager.enabled }}
{{- if and $own (or $invited .Values.tls.fromHub) }}{{ fail "hub.token, hub.tokenSecret and tls.fromHub are not valid together with tls.secretName or tls.certManager: the certificate comes from the hub, or from there" }}{{ end }}
{{- if and (not .Values.hub.address) (or $invited .Values.tls.fromHub) }}{{ fail "hub.token, hub.tokenSecret and tls.fromHub need hub.address" }}{{ end }}
{{- if and .Values.hub.token .Values.hub.tokenSecret }}{{ fail "hub.token is not valid together with hub.tokenSecret, want one of them" }}{{ end }}
{{- if or $invited .Values.tls.fromHub }}true{{ end }}
{{- end }}

{{/* Whether the certificate is in files of a Secret. */}}
{{- define "worker.files" -}}
{{- if and (include "worker.peers" .) (not (include "worker.issued" .)) }}true{{ end }}
{{- end }}

{{/* A hosting release's ServiceAccount has no rights of a worker: a worker of this cluster is another release. */}}
{{- define "worker.account" -}}
{{- ternary (include "worker.fullname" .) "atoll-worker" .Values.hosted.enabled }}
{{- end }}

{{- define "worker.invitation" -}}
{{- default (printf "%s-invitation" (include "worker.fullname" .)) .Values.hub.tokenSecret }}
{{- end }}

{{/* One replica, where a second would know nothing of what the first has recorded. */}}
{{- define "worker.replicas" -}}
{{- if not (kindIs "invalid" .Values.replicas) }}{{ int .Values.replicas }}{{ else if .Values.hosted.enabled }}2{{ else }}{{ ternary 2 1 (eq (include "worker.peers" .) "true") }}{{ end }}
{{- end }}

{{/* Ports of the hub's addresses, and the one of its Pod: a hub in this cluster is reached on that, whatever the Service's is. */}}
{{- define "worker.hubPorts" -}}
{{- $ports := list }}
{{- range splitList "," .Values.hub.address }}{{ $ports = append $ports (dict "port" (splitList ":" . | last | int)) }}{{ end }}
{{- append $ports (dict "port" 8443) | uniq | toJson }}
{{- end }}

{{/* A file that is applied without helm as well. It is written for the namespace atoll-system and the cluster CLUSTER_ID. */}}
{{- define "worker.file" -}}
{{- .content | replace "atoll-system" .root.Release.Namespace | replace "CLUSTER_ID" .root.Values.clusterID }}
{{- end }}

{{/* What the process reads of OpenTelemetry's own environment. */}}
{{- define "worker.tracing" -}}
- {name: OTEL_TRACES_SAMPLER, value: parentbased_traceidratio}
- {name: OTEL_TRACES_SAMPLER_ARG, value: {{ .Values.tracing.sampleRatio | quote }}}
{{- with .Values.tracing.headersSecret }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom: {secretKeyRef: {name: {{ . }}, key: headers}}
{{- end }}
{{- end }}
