{{/* Short enough for what is appended: the StatefulSet's revision, "-metrics". */}}
{{- define "hub.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{/* What Pods are found by. Never changes during the life of a release. */}}
{{- define "hub.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "hub.labels" -}}
{{ include "hub.selector" . }}
app.kubernetes.io/component: hub
app.kubernetes.io/part-of: atoll
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "hub.image" -}}
{{- with .Values.image -}}
{{- if .registry }}{{ trimSuffix "/" .registry }}/{{ end }}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end }}

{{- define "hub.names" -}}
{{- $names := .Values.ca.hubNames -}}
{{- $ns := .Release.Namespace -}}
{{- $fullname := include "hub.fullname" . -}}
{{- range list (printf "%s-link" $fullname) $fullname -}}
{{- $names = concat $names (list (printf "%s.%s.svc" . $ns) (printf "%s.%s.svc.cluster.local" . $ns) (printf "%s.%s" . $ns) .) -}}
{{- end -}}
{{- join "," $names -}}
{{- end -}}

{{/* The port of the link for workers of other clusters. */}}
{{- define "hub.linkPort" -}}
{{- with .Values.service.link -}}
{{- if ne .type "NodePort" }}{{ int .port }}{{ else if .nodePort }}{{ int .nodePort }}{{ else }}NODE_PORT{{ end -}}
{{- end -}}
{{- end }}

{{- define "hub.tlsSecret" -}}
{{- default (printf "%s-tls" (include "hub.fullname" .)) .Values.tls.secretName -}}
{{- end }}

{{- define "hub.apiKeysSecret" -}}
{{- default (printf "%s-api-keys" (include "hub.fullname" .)) .Values.apiKeys.secretName -}}
{{- end }}

{{/* What the process reads of OpenTelemetry's own environment. */}}
{{- define "hub.tracing" -}}
- {name: OTEL_TRACES_SAMPLER, value: parentbased_traceidratio}
- {name: OTEL_TRACES_SAMPLER_ARG, value: {{ .Values.tracing.sampleRatio | quote }}}
{{- with .Values.tracing.headersSecret }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom: {secretKeyRef: {name: {{ . }}, key: headers}}
{{- end }}
{{- end }}

{{/* The collector's port. */}}
{{- define "hub.tracingPort" -}}
{{- .Values.tracing.endpoint | splitList ":" | last }}
{{- end }}

{{/* "true" with several replicas, which share an etcd. */}}
{{- define "hub.several" -}}
{{- if gt (int .Values.replicas) 1 -}}
{{- if not .Values.store.etcd.endpoints -}}
{{- fail (printf "replicas: %d is not valid without store.etcd.endpoints, want 1: replicas share an etcd" (int .Values.replicas)) -}}
{{- end -}}
true
{{- end -}}
{{- end }}

{{- define "hub.gossipSecret" -}}
{{- default (printf "%s-gossip" (include "hub.fullname" .)) .Values.gossip.secretName -}}
{{- end }}

{{/* "true" where the hub keeps a copy of the list of clusters. An etcd is copied by its own means. */}}
{{- define "hub.registryCopy" -}}
{{- if and .Values.registryCopy.enabled (not .Values.store.etcd.endpoints) }}true{{ end -}}
{{- end }}

{{/* "true" where the hub asks its cluster who callers are, and what they may do. */}}
{{- define "hub.asksCluster" -}}
{{- if has "kubernetes" .Values.auth.ways }}true{{ end -}}
{{- end }}

{{/* "true" where the hub takes the catalogue from its cluster. */}}
{{- define "hub.takesCatalog" -}}
{{- if eq .Values.catalog "kubernetes" }}true{{ end -}}
{{- end }}

{{/* "true" where the hub checks tokens of issuers. */}}
{{- define "hub.checksTokens" -}}
{{- if has "oidc" .Values.auth.ways }}true{{ end -}}
{{- end }}

{{/* "true" where the hub has a ServiceAccount and reaches its cluster's API server. With oidc an issuer may be that cluster. */}}
{{- define "hub.account" -}}
{{- if or (include "hub.registryCopy" .) (include "hub.asksCluster" .) (include "hub.takesCatalog" .) (include "hub.checksTokens" .) -}}
true
{{- end -}}
{{- end }}

{{/* Where Pods are spread without topologySpreadConstraints. */}}
{{- define "hub.spread" -}}
{{- $selector := include "hub.selector" . -}}
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- $selector | nindent 6 }}
{{- end }}
{{- end }}
