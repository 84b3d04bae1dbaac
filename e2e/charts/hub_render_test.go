// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"navix.sh/atoll/e2e/charts/harness"
	"navix.sh/atoll/e2e/must"
)

// everything turns on what is off by default.
const everything = `
image: {registry: registry.example/atoll, tag: v9}
imagePullSecrets: [{name: pull}]
tls: {certManager: {enabled: true, issuerRef: {name: federation, kind: ClusterIssuer}, dnsNames: [hub.example.org], ` +
	`ipAddresses: [192.0.2.7]}}
service:
  api: {type: LoadBalancer, annotations: {example.org/kind: internal}}
  link: {type: NodePort, nodePort: 30443}
persistence: {storageClass: fast, size: 5Gi, takeOwnership: true}
extraArgs: [--store-lock-wait=30s]
podAnnotations: {example.org/a: b}
podLabels: {example.org/c: d}
nodeSelector: {disk: fast}
tolerations: [{key: hub, operator: Exists}]
affinity: {podAntiAffinity: {}}
topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
priorityClassName: important
pdb: {enabled: true}
networkPolicy: {apiFrom: [{ipBlock: {cidr: 192.0.2.0/24}}], metricsFrom: [{namespaceSelector: {}, ` +
	`podSelector: {matchLabels: {app: prometheus}}}]}
serviceMonitor: {enabled: true, interval: 10s, labels: {release: prometheus}}
tracing: {endpoint: "http://collector.monitoring:4317", sampleRatio: 0.05, headersSecret: collector}
audit: {to: [stdout, otlp, strict]}
e2b: {enabled: true, port: 3000, domain: sandboxes.example.org, keySecretName: e2b, buildEnv: agents/python, buildSandboxes: 4}
mcp: {maxSessions: 9, sessionTimeout: 1m}
prometheusRule: {enabled: true, labels: {release: prometheus}}
grafanaDashboard: {enabled: true}
`

func hubRelease(values string) harness.Release {
	return harness.Release{Name: "atoll-hub", Namespace: "atoll-system", Chart: helm.Chart("hub"), Values: values}
}

func renderHub(t *testing.T, values string) harness.Objects {
	t.Helper()
	objects, err := helm.Template(t.Context(), hubRelease(values))
	must.Succeed(t, err)
	return objects
}

// as reads one of the rendered objects, and fails on fields that Kubernetes does not know.
func as[T any](t *testing.T, objects harness.Objects, kind, name string) *T {
	t.Helper()
	typed, err := harness.As[T](objects, kind, name)
	must.Succeed(t, err)
	return typed
}

func TestChartsLint(t *testing.T) {
	for chart, values := range map[string][]string{
		"hub": {"", everything, replicated}, "worker": {"clusterID: east", "clusterID: east\n" + allOfWorker},
	} {
		for _, v := range values {
			if err := helm.Lint(t.Context(), helm.Chart(chart), v); err != nil {
				t.Errorf("%s with %q: %v", chart, v, err)
			}
		}
	}
}

// wantText fails the test for each of the texts that is not in what was rendered or printed.
func wantText(t *testing.T, what, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%s lack %q:\n%s", what, want, text)
		}
	}
}

// kindsOf counts objects by their kind.
func kindsOf(objects harness.Objects) map[string]int {
	kinds := map[string]int{}
	for _, object := range objects {
		kinds[object.GetKind()]++
	}
	return kinds
}

// wantRefusals renders a chart with each of the values, behind those that are always there. The error must have the text.
func wantRefusals(t *testing.T, release harness.Release, always string, refusals map[string]string) {
	t.Helper()
	for values, want := range refusals {
		release.Values = always + values
		if _, err := helm.Template(t.Context(), release); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %q", values, err, want)
		}
	}
}

func TestHubRefusesValues(t *testing.T) {
	wantRefusals(t, hubRelease(""), "", map[string]string{
		"replicas: 2":                           "replicas: 2 is not valid without store.etcd.endpoints",
		"replicas: 0":                           "'/replicas'",
		"store: {etcd: {endpoints: [a:2379]}}":  "'/store/etcd/endpoints/0'",
		"store: {etcd: {prefix: atoll}}":        "'/store/etcd/prefix'",
		"migrate: {to: sqlite}":                 "'/migrate/to': value must be one of '', 'etcd', 'bbolt'",
		"catalog: git":                          "'/catalog': value must be one of 'api', 'kubernetes'",
		"migrate: {to: etcd}":                   "migrate.etcd.endpoints is missing",
		"gossip: {secretname: x}":               "'/gossip': additional properties 'secretname' not allowed",
		"persistence: {sizes: 1Gi}":             "'/persistence': additional properties 'sizes' not allowed",
		"persistence: {size: big}":              "'/persistence/size'",
		"service: {api: {port: '8080'}}":        "'/service/api/port': got string, want integer",
		"service: {link: {port: 0}}":            "'/service/link/port'",
		"service: {link: {type: External}}":     "'/service/link/type': value must be one of 'ClusterIP', 'NodePort', 'LoadBalancer'",
		"service: {link: {nodePort: 30443}}":    "'/service/link/nodePort'", // of a ClusterIP
		"tls: {certManager: {enabled: true}}":   "'/tls/certManager/issuerRef/name'",
		"tls: {certManager: {duration: 30d}}":   "'/tls/certManager/duration'",
		"tls: {secretName: Not_A_Name}":         "'/tls/secretName'",
		"image: {tag: 'a:b'}":                   "'/image/tag'",
		"image: {pullPolicy: Sometimes}":        "'/image/pullPolicy'",
		"logLevel: loud":                        "'/logLevel': value must be one of 'debug', 'info', 'warn', 'error'",
		"logFormat: xml":                        "'/logFormat'",
		"claimKeyRetention: 24":                 "'/claimKeyRetention': got number, want string",
		"watches: {max: 0}":                     "'/watches/max'",
		"watches: {maxPerUser: 1}":              "'/watches': additional properties 'maxPerUser' not allowed",
		"extraArgs: [listen]":                   "'/extraArgs/0'",
		"extraArgs: --listen=:1":                "'/extraArgs': got string, want array",
		"podAnnotations: {a: 1}":                "'/podAnnotations/a': got number, want string",
		"networkPolicy: {apiFrom: [{ip: x}]}":   "'/networkPolicy/apiFrom/0': additional properties 'ip' not allowed",
		"networkPolicy: {apiFrom: [{}]}":        "'/networkPolicy/apiFrom/0': minProperties",
		"serviceMonitor: {interval: often}":     "'/serviceMonitor/interval'",
		"tracing: {endpoint: 'collector:4317'}": "'/tracing/endpoint'",
		"tracing: {endpoint: 'http://c'}":       "'/tracing/endpoint'", // no port
		"tracing: {sampleRatio: 5}":             "'/tracing/sampleRatio'",
		"audit: {to: [syslog]}":                 "'/audit/to/0'",
		"audit: {to: []}":                       "'/audit/to'",
		"prometheusRule: {rules: []}":           "'/prometheusRule': additional properties 'rules' not allowed",
		"terminationGracePeriodSeconds: 1":      "'/terminationGracePeriodSeconds'",
		"pdb: {enabled: 'yes'}":                 "'/pdb/enabled': got string, want boolean",
		"imagePullSecrets: [name]":              "'/imagePullSecrets/0': got string, want object",
		"resources: {limit: {memory: 1Gi}}":     "'/resources': additional properties 'limit' not allowed",
		"apiKeys: {secretname: x}":              "'/apiKeys': additional properties 'secretname' not allowed",
		"tls: {certManager: {uris: [x]}}":       "'/tls/certManager': additional properties 'uris' not allowed",
		"e2b: {port: 0}":                        "'/e2b/port'",
		"e2b: {domain: A}":                      "'/e2b/domain'",
		"e2b: {buildEnv: A}":                    "'/e2b/buildEnv'",
		"e2b: {buildSandboxes: 17}":             "'/e2b/buildSandboxes'",
		"mcp: {maxSandboxes: 0}":                "'/mcp/maxSandboxes'",
		"mcp: {idleTimeout: long}":              "'/mcp/idleTimeout'",
		"e2b: {enabled: true}\nstore: {etcd: {endpoints: ['https://a:2379']}}": "e2b.keySecretName is missing",
		"auth: {ways: [ldap]}":                 "'/auth/ways/0'",
		"auth: {ways: []}":                     "'/auth/ways'",
		"auth: {ways: [oidc]}":                 "auth.oidc.configMap is missing",
		"podSecurityContext: restricted":       "'/podSecurityContext': got string, want object",
		"topologySpreadConstraints: {zone: 1}": "'/topologySpreadConstraints': got object, want array",
	})
}

func TestHubRendersWhatIsAskedFor(t *testing.T) {
	always := []string{
		"NetworkPolicy/atoll-hub", "Service/atoll-hub", "Service/atoll-hub-link", "Service/atoll-hub-metrics", "StatefulSet/atoll-hub",
		"Role/atoll-hub", "RoleBinding/atoll-hub", "Secret/atoll-hub-clusters", "ServiceAccount/atoll-hub",
	}
	for values, want := range map[string][]string{
		"":                                slices.Clone(always),
		"networkPolicy: {enabled: false}": slices.Clone(always[1:]),
		"registryCopy: {enabled: false}":  slices.Clone(always[:5]),
		everything: append([]string{"Certificate/atoll-hub", "ConfigMap/atoll-hub-dashboard",
			"PodDisruptionBudget/atoll-hub", "PrometheusRule/atoll-hub", "ServiceMonitor/atoll-hub"}, always...),
		"fullnameOverride: other": {"NetworkPolicy/other", "Service/other", "Service/other-link", "Service/other-metrics", "StatefulSet/other",
			"Role/other", "RoleBinding/other", "Secret/other-clusters", "ServiceAccount/other"},
	} {
		names := renderHub(t, values).Names()
		slices.Sort(names)
		slices.Sort(want)
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("%s (-want +got):\n%s", values, diff)
		}
	}
}

// What refers to something by name or label finds it, whatever is switched on.
func TestHubPartsFitTogether(t *testing.T) {
	for _, values := range []string{
		"", everything, "nameOverride: x", "e2b: {enabled: true}",
		"service: {api: {port: 443}, link: {port: 9443}}",
	} {
		objects := renderHub(t, values)
		fullname := "atoll-hub"
		if strings.HasPrefix(values, "nameOverride") {
			fullname = "atoll-hub-x"
		}
		set := as[appsv1.StatefulSet](t, objects, "StatefulSet", fullname)
		pod := labels.Set(set.Spec.Template.Labels)
		ports := map[string]bool{}
		for _, port := range set.Spec.Template.Spec.Containers[0].Ports {
			ports[port.Name] = true
		}
		if !labels.SelectorFromSet(set.Spec.Selector.MatchLabels).Matches(pod) {
			t.Errorf("%s: the StatefulSet does not select its Pod", values)
		}
		for _, name := range []string{"", "-link", "-metrics"} {
			service := as[corev1.Service](t, objects, "Service", fullname+name)
			for _, port := range service.Spec.Ports {
				if !labels.SelectorFromSet(service.Spec.Selector).Matches(pod) || !ports[port.TargetPort.StrVal] {
					t.Errorf("%s: port %s of Service %s reaches no port of the Pod", values, port.Name, service.Name)
				}
			}
		}
		governing := as[corev1.Service](t, objects, "Service", set.Spec.ServiceName)
		if governing.Spec.ClusterIP != corev1.ClusterIPNone {
			t.Errorf("%s: the StatefulSet's Service %s is not headless", values, governing.Name)
		}
		if objects.Find("NetworkPolicy", fullname) != nil {
			policy := as[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy", fullname)
			for _, rule := range policy.Spec.Ingress {
				for _, port := range rule.Ports {
					if !ports[port.Port.StrVal] {
						t.Errorf("%s: the NetworkPolicy opens %v, which the Pod does not have", values, port.Port)
					}
				}
			}
			if !labels.SelectorFromSet(policy.Spec.PodSelector.MatchLabels).Matches(pod) {
				t.Errorf("%s: the NetworkPolicy does not select the Pod", values)
			}
		}
	}
}

func TestHubPod(t *testing.T) {
	def := as[appsv1.StatefulSet](t, renderHub(t, ""), "StatefulSet", "atoll-hub").Spec
	all := as[appsv1.StatefulSet](t, renderHub(t, everything), "StatefulSet", "atoll-hub").Spec
	hub := def.Template.Spec.Containers[0]
	if *def.Replicas != 1 || hub.Image != "atoll-hub:0.1.0" || all.Template.Spec.Containers[0].Image != "registry.example/atoll/atoll-hub:v9" {
		t.Errorf("%d replicas of %s and %s", *def.Replicas, hub.Image, all.Template.Spec.Containers[0].Image)
	}
	if args := all.Template.Spec.Containers[0].Args; args[len(args)-1] != "--store-lock-wait=30s" {
		t.Errorf("extra arguments do not come last: %q", args)
	}
	pod := all.Template.Spec
	if pod.NodeSelector["disk"] != "fast" || len(pod.Tolerations) != 1 || pod.Affinity == nil || len(pod.TopologySpreadConstraints) != 1 ||
		pod.PriorityClassName != "important" || pod.ImagePullSecrets[0].Name != "pull" ||
		all.Template.Annotations["example.org/a"] != "b" || all.Template.Labels["example.org/c"] != "d" {
		t.Errorf("the Pod lacks what values ask for: %+v", pod)
	}
	alone := as[appsv1.StatefulSet](t, renderHub(t, "registryCopy: {enabled: false}"), "StatefulSet", "atoll-hub").Spec.Template.Spec
	if *alone.AutomountServiceAccountToken || alone.ServiceAccountName != "" ||
		!slices.Contains(alone.Containers[0].Args, "--registry-copy=none") {
		t.Error("the Pod is told about its cluster, where the hub has no business")
	}
	if !*def.Template.Spec.AutomountServiceAccountToken || def.Template.Spec.ServiceAccountName != "atoll-hub" ||
		!slices.Contains(hub.Args, "--registry-copy=secret:atoll-hub-clusters") || *def.Template.Spec.EnableServiceLinks {
		t.Errorf("the hub cannot keep its registry's copy: %+v", def.Template.Spec)
	}
	for _, mount := range hub.VolumeMounts {
		if mount.SubPath != "" {
			t.Errorf("%s is mounted by subPath and would not follow its Secret", mount.Name)
		}
	}
	if own := pod.InitContainers; len(own) != 1 || !cmp.Equal(own[0].Args,
		[]string{"initvolume", "/var/lib/atoll-hub", "--uid=65532", "--gid=65532"}) {
		t.Errorf("takeOwnership gives init containers %+v", own)
	}
	// GOMEMLIMIT of a container without a limit would be the node's memory.
	unlimited := as[appsv1.StatefulSet](t, renderHub(t, "resources: {limits: {memory: null}}"), "StatefulSet", "atoll-hub")
	if len(hub.Env) != 1 || len(unlimited.Spec.Template.Spec.Containers[0].Env) != 0 {
		t.Errorf("environment with a limit %v, without one %v", hub.Env, unlimited.Spec.Template.Spec.Containers[0].Env)
	}
}

// The Secret with API keys is mounted where the hub reads them; without keys as a way in, it is not needed.
func TestHubReadsItsAPIKeys(t *testing.T) {
	for values, want := range map[string]string{
		"":                             "atoll-hub-api-keys",
		"nameOverride: x":              "atoll-hub-x-api-keys",
		"apiKeys: {secretName: teams}": "teams",
		"auth: {ways: [kubernetes]}\napiKeys: {secretName: teams}":       "",
		"auth: {ways: [keys, kubernetes]}\napiKeys: {secretName: teams}": "teams",
	} {
		fullname := "atoll-hub"
		if strings.HasPrefix(values, "nameOverride") {
			fullname = "atoll-hub-x"
		}
		pod := as[appsv1.StatefulSet](t, renderHub(t, values), "StatefulSet", fullname).Spec.Template.Spec
		secret, folder, file := "", "", ""
		for _, v := range pod.Volumes {
			if v.Name == "api-keys" {
				secret = v.Secret.SecretName
				if len(v.Secret.Items) != 1 || v.Secret.Items[0].Path != "keys.yaml" {
					t.Errorf("%s: the volume has %+v", values, v.Secret.Items)
				}
			}
		}
		for _, m := range pod.Containers[0].VolumeMounts {
			if m.Name == "api-keys" && m.ReadOnly {
				folder = m.MountPath
			}
		}
		for _, arg := range pod.Containers[0].Args {
			if path, ok := strings.CutPrefix(arg, "--api-keys-file="); ok {
				file = path
			}
		}
		if secret != want || want == "" && (folder != "" || file != "") || want != "" && (folder == "" || file != folder+"/keys.yaml") {
			t.Errorf("%s: the hub reads %q, and Secret %q is mounted at %q, want Secret %q", values, file, secret, folder, want)
		}
	}
}

// E2B's port is reached by who reaches the API, and by no one where it is off.
func TestHubServesE2B(t *testing.T) {
	for values, want := range map[string]struct {
		args   []string
		port   int32
		sealed bool
	}{
		"": {}, "e2b: {domain: a}": {},
		// Without E2B's port, the key is that of sandboxes' daemons.
		"e2b: {domain: a, keySecretName: e2b}": {args: []string{"--e2b-key-file=/etc/atoll/e2b/key"}, sealed: true},
		"e2b: {enabled: true}":                 {args: []string{"--e2b-listen=:8083"}, port: 8083},
		everything: {
			args: []string{"--e2b-listen=:8083", "--e2b-domain=sandboxes.example.org", "--e2b-build-env=agents/python",
				"--e2b-build-sandboxes=4", "--e2b-key-file=/etc/atoll/e2b/key"},
			port: 3000, sealed: true,
		},
	} {
		objects := renderHub(t, values)
		pod := as[appsv1.StatefulSet](t, objects, "StatefulSet", "atoll-hub").Spec.Template.Spec
		args := slices.DeleteFunc(slices.Clone(pod.Containers[0].Args), func(arg string) bool { return !strings.HasPrefix(arg, "--e2b") })
		var port int32
		for _, p := range as[corev1.Service](t, objects, "Service", "atoll-hub").Spec.Ports {
			if p.Name == "e2b" {
				port = p.Port
			}
		}
		opened := len(as[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy", "atoll-hub").Spec.Ingress[0].Ports) == 2
		if !slices.Equal(args, want.args) || port != want.port || opened != (want.port != 0) {
			t.Errorf("%s: args %q, port %d, opened %t", values, args, port, opened)
		}
		mounted := slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "e2b" && v.Secret.SecretName == "e2b" })
		if mounted != want.sealed {
			t.Errorf("%s: the key is mounted: %t", values, mounted)
		}
	}
}

func TestHubServesSessionsOfAgents(t *testing.T) {
	for values, want := range map[string][]string{
		"": {"--mcp-max-sessions=256", "--mcp-max-sessions-per-caller=32", "--mcp-max-sandboxes=8", "--mcp-session-timeout=5m",
			"--mcp-idle-timeout=30m"},
		everything: {"--mcp-max-sessions=9", "--mcp-max-sessions-per-caller=32", "--mcp-max-sandboxes=8", "--mcp-session-timeout=1m",
			"--mcp-idle-timeout=30m"},
	} {
		pod := as[appsv1.StatefulSet](t, renderHub(t, values), "StatefulSet", "atoll-hub").Spec.Template.Spec
		args := slices.DeleteFunc(slices.Clone(pod.Containers[0].Args), func(arg string) bool { return !strings.HasPrefix(arg, "--mcp") })
		if !slices.Equal(args, want) {
			t.Errorf("%s: args %q, want %q", values, args, want)
		}
	}
}

func TestHubVolume(t *testing.T) {
	volume := func(values string) (claim *corev1.PersistentVolumeClaim, data *corev1.Volume) {
		set := as[appsv1.StatefulSet](t, renderHub(t, values), "StatefulSet", "atoll-hub")
		for _, v := range set.Spec.Template.Spec.Volumes {
			if v.Name == "data" {
				data = &v
			}
		}
		for _, c := range set.Spec.VolumeClaimTemplates {
			claim = &c
		}
		return claim, data
	}
	claim, data := volume("")
	if data != nil || claim.Spec.StorageClassName != nil || claim.Spec.Resources.Requests.Storage().String() != "2Gi" {
		t.Errorf("default: claim %+v, volume %+v", claim, data)
	}
	if claim, data = volume(everything); data != nil || *claim.Spec.StorageClassName != "fast" ||
		claim.Spec.Resources.Requests.Storage().String() != "5Gi" {
		t.Errorf("with class and size: claim %+v, volume %+v", claim, data)
	}
	if claim, data = volume("persistence: {existingClaim: mine}"); claim != nil || data.PersistentVolumeClaim.ClaimName != "mine" {
		t.Errorf("with a claim of one's own: claim %+v, volume %+v", claim, data)
	}
	if claim, data = volume("persistence: {enabled: false}"); claim != nil || data.EmptyDir == nil {
		t.Errorf("without persistence: claim %+v, volume %+v", claim, data)
	}
}

func TestHubServices(t *testing.T) {
	objects := renderHub(t, everything)
	api := as[corev1.Service](t, objects, "Service", "atoll-hub").Spec
	link := as[corev1.Service](t, objects, "Service", "atoll-hub-link").Spec
	if api.Type != corev1.ServiceTypeLoadBalancer || api.Ports[0].Port != 8080 || api.Ports[0].NodePort != 0 {
		t.Errorf("api %+v", api)
	}
	if link.Type != corev1.ServiceTypeNodePort || link.Ports[0].Port != 8443 || link.Ports[0].NodePort != 30443 {
		t.Errorf("link %+v", link)
	}
	if got := as[corev1.Service](t, objects, "Service", "atoll-hub").Annotations["example.org/kind"]; got != "internal" {
		t.Errorf("annotation %q", got)
	}
}

// TestHubRightsAreThoseOfItsOneSecret, which outlives the release as the volume does.
func TestHubRightsAreThoseOfItsOneSecret(t *testing.T) {
	objects := renderHub(t, "")
	rules := as[rbacv1.Role](t, objects, "Role", "atoll-hub").Rules
	want := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"atoll-hub-clusters"},
		Verbs: []string{"get", "patch"}}}
	if diff := cmp.Diff(want, rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	secret := as[corev1.Secret](t, objects, "Secret", "atoll-hub-clusters")
	if len(secret.Data)+len(secret.StringData) != 0 || secret.Annotations["helm.sh/resource-policy"] != "keep" {
		t.Errorf("an upgrade would empty it, or an uninstallation remove it: %+v", secret)
	}
}

// Delegation takes the right to ask about callers, whatever else there is, and no keys.
func TestHubAuth(t *testing.T) {
	for _, more := range []string{"", "registryCopy: {enabled: false}\n"} {
		objects := renderHub(t, more+"auth: {ways: [oidc, kubernetes], oidc: {configMap: issuers}, kubernetes: {audiences: [a, b]}}")
		spec := as[appsv1.StatefulSet](t, objects, "StatefulSet", "atoll-hub").Spec.Template.Spec
		args := strings.Join(spec.Containers[0].Args, " ")
		wantText(t, "the arguments", args, "--auth=oidc,kubernetes ", "--oidc-config-file=/etc/atoll/oidc/issuers.yaml",
			"--auth-kubernetes-audiences=a,b ", "--auth-kubernetes-ttl=30s")
		if strings.Contains(args, "--api-keys-file") || spec.ServiceAccountName != "atoll-hub" || !*spec.AutomountServiceAccountToken {
			t.Errorf("args %s, ServiceAccount %q, %v", args, spec.ServiceAccountName, spec.AutomountServiceAccountToken)
		}
		binding := as[rbacv1.ClusterRoleBinding](t, objects, "ClusterRoleBinding", "atoll-system-atoll-hub-auth-delegator")
		if binding.RoleRef.Name != "system:auth-delegator" || len(binding.Subjects) != 1 || binding.Subjects[0].Name != "atoll-hub" {
			t.Errorf("binding %+v", binding)
		}
		if role := as[rbacv1.ClusterRole](t, objects, "ClusterRole", "atoll-developer"); len(role.Rules) == 0 {
			t.Error("the roles are not installed")
		}
		if n := kindsOf(objects)["ServiceAccount"]; n != 1 {
			t.Errorf("%d ServiceAccounts", n)
		}
	}
}

// What says who callers are is reached, with the account's token and CA, also where the hub has no other business with its cluster.
func TestHubReachesWhatAuthenticatesCallers(t *testing.T) {
	const (
		etcd   = "store: {etcd: {endpoints: ['https://etcd:2379']}}\n"
		oidc   = "auth: {ways: [oidc], oidc: {configMap: issuers}}\n"
		noCopy = "registryCopy: {enabled: false}\n"
	)
	for values, want := range map[string][]int{
		etcd + "auth: {ways: [kubernetes]}":   {53, 53, 2379, 443, 6443},
		noCopy + "auth: {ways: [kubernetes]}": {53, 53, 443, 6443},
		etcd + oidc:                           {53, 53, 2379, 443, 6443},
		noCopy + oidc:                         {53, 53, 443, 6443},
		noCopy + oidc + "networkPolicy: {apiServerPorts: [16443]}": {53, 53, 443, 16443},
		oidc + "networkPolicy: {apiServerPorts: [16443]}":          {53, 53, 443, 16443},
		etcd + "networkPolicy: {apiServerPorts: [16443]}":          {53, 53, 2379},
	} {
		objects := renderHub(t, values)
		var ports []int
		for _, rule := range as[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy", "atoll-hub").Spec.Egress {
			for _, port := range rule.Ports {
				ports = append(ports, port.Port.IntValue())
			}
		}
		if diff := cmp.Diff(want, ports); diff != "" {
			t.Errorf("%s: ports out (-want +got):\n%s", values, diff)
		}
		pod := as[appsv1.StatefulSet](t, objects, "StatefulSet", "atoll-hub").Spec.Template.Spec
		account, accounts := "atoll-hub", 1
		if !strings.Contains(values, "auth:") {
			account, accounts = "", 0
		}
		if n := kindsOf(objects)["ServiceAccount"]; n != accounts || pod.ServiceAccountName != account ||
			*pod.AutomountServiceAccountToken != (accounts == 1) {
			t.Errorf("%s: %d ServiceAccounts, the Pod's is %q, its token is mounted: %t", values, n, pod.ServiceAccountName,
				*pod.AutomountServiceAccountToken)
		}
	}
}

// With its catalogue in its cluster the hub may read those objects, and write their status and finalizers; else it may do nothing of it.
func TestHubTakesTheCatalogue(t *testing.T) {
	if arguments := hubArguments(renderHubPod(t, "")); slices.Contains(arguments, "--catalog=kubernetes") {
		t.Errorf("the default has %v", arguments)
	}
	if names := renderHub(t, "").Names(); slices.Contains(names, "ClusterRole/atoll-system-atoll-hub-catalog") {
		t.Errorf("the default has %v", names)
	}
	for _, values := range []string{"catalog: kubernetes", "catalog: kubernetes\nregistryCopy: {enabled: false}"} {
		objects := renderHub(t, values)
		pod := as[appsv1.StatefulSet](t, objects, "StatefulSet", "atoll-hub").Spec.Template.Spec
		if !slices.Contains(hubArguments(pod), "--catalog=kubernetes") || !*pod.AutomountServiceAccountToken ||
			pod.ServiceAccountName != "atoll-hub" {
			t.Errorf("%s: the Pod is %+v", values, pod)
		}
		role := as[rbacv1.ClusterRole](t, objects, "ClusterRole", "atoll-system-atoll-hub-catalog")
		for _, rule := range role.Rules {
			for _, verb := range rule.Verbs {
				if !slices.Contains([]string{"get", "list", "watch", "patch"}, verb) {
					t.Errorf("%s: the hub may %s %v", values, verb, rule.Resources)
				}
			}
		}
		binding := as[rbacv1.ClusterRoleBinding](t, objects, "ClusterRoleBinding", "atoll-system-atoll-hub-catalog")
		if binding.RoleRef.Name != role.Name || len(binding.Subjects) != 1 || binding.Subjects[0].Name != "atoll-hub" {
			t.Errorf("%s: binding %+v", values, binding)
		}
		if n := kindsOf(objects)["ServiceAccount"]; n != 1 || objects.Find("ServiceAccount", "atoll-hub") == nil {
			t.Errorf("%s: %d ServiceAccounts", values, n)
		}
		out := as[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy", "atoll-hub").Spec.Egress
		if len(out) != 2 || len(out[1].Ports) != 2 || out[1].Ports[1].Port.IntValue() != 6443 {
			t.Errorf("%s: the hub cannot reach the API server: %+v", values, out)
		}
	}
}

func renderHubPod(t *testing.T, values string) corev1.PodSpec {
	t.Helper()
	return as[appsv1.StatefulSet](t, renderHub(t, values), "StatefulSet", "atoll-hub").Spec.Template.Spec
}

func hubArguments(pod corev1.PodSpec) []string { return pod.Containers[0].Args }

func TestHubNetworkPolicy(t *testing.T) {
	out := as[networkingv1.NetworkPolicy](t, renderHub(t, ""), "NetworkPolicy", "atoll-hub").Spec.Egress
	if len(out) != 2 || len(out[1].Ports) != 2 || out[1].Ports[1].Port.IntValue() != 6443 {
		t.Errorf("the hub cannot reach the API server: %+v", out)
	}
	closed := as[networkingv1.NetworkPolicy](t, renderHub(t, "registryCopy: {enabled: false}"), "NetworkPolicy", "atoll-hub").Spec
	if len(closed.PolicyTypes) != 2 || len(closed.Egress) != 0 {
		t.Errorf("the hub may connect to others: %+v", closed)
	}
	from := map[intstr.IntOrString]int{}
	for _, rule := range as[networkingv1.NetworkPolicy](t, renderHub(t, everything), "NetworkPolicy", "atoll-hub").Spec.Ingress {
		from[*rule.Ports[0].Port] = len(rule.From)
	}
	want := map[intstr.IntOrString]int{intstr.FromString("api"): 1, intstr.FromString("link"): 0, intstr.FromString("metrics"): 1}
	if diff := cmp.Diff(want, from); diff != "" {
		t.Errorf("peers by port (-want +got):\n%s", diff)
	}
	extra := as[networkingv1.NetworkPolicy](t, renderHub(t, `
networkPolicy:
  extraIngress: [{ports: [{port: health}]}]
  extraEgress: [{ports: [{port: 53, protocol: UDP}]}]
`), "NetworkPolicy", "atoll-hub").Spec
	if len(extra.Ingress) != 4 || len(extra.Egress) != 3 {
		t.Errorf("further rules: %+v", extra)
	}
}

// replicated is a hub of three replicas.
const replicated = `
replicas: 3
store: {etcd: {endpoints: ["https://etcd-0.etcd:2379", "https://etcd-1.etcd:2379"], tlsSecretName: etcd-client, userSecretName: etcd-user}}
`

func TestHubReplicas(t *testing.T) {
	objects := renderHub(t, replicated)
	set := as[appsv1.StatefulSet](t, objects, "StatefulSet", "atoll-hub").Spec
	pod := set.Template.Spec
	if *set.Replicas != 3 || len(set.VolumeClaimTemplates) != 0 || len(pod.TopologySpreadConstraints) != 2 || pod.ServiceAccountName != "" {
		t.Errorf("%d replicas, %d volume claims, spread %v, account %q", *set.Replicas, len(set.VolumeClaimTemplates),
			pod.TopologySpreadConstraints, pod.ServiceAccountName)
	}
	for _, arg := range []string{
		"--store=etcd:https://etcd-0.etcd:2379,https://etcd-1.etcd:2379", "--etcd-prefix=/atoll", "--etcd-ca-file=/etc/atoll/etcd/ca.crt",
		"--etcd-cert-file=/etc/atoll/etcd/tls.crt", "--etcd-user-file=/etc/atoll/etcd-user/user", "--replica-name=$(POD_NAME)",
		"--peer-listen=:8444", "--gossip-listen=:7946", "--gossip-keyring-file=/etc/atoll/gossip/keys", "--join=atoll-hub-peers",
		"--registry-copy=none",
	} {
		if !slices.Contains(pod.Containers[0].Args, arg) {
			t.Errorf("no argument %s in %v", arg, pod.Containers[0].Args)
		}
	}
	peers := as[corev1.Service](t, objects, "Service", "atoll-hub-peers").Spec
	if peers.ClusterIP != corev1.ClusterIPNone || !peers.PublishNotReadyAddresses || len(peers.Ports) != 3 {
		t.Errorf("the Service of replicas: %+v", peers)
	}
	// 32 bytes in base64, and a line's end.
	if keys := as[corev1.Secret](t, objects, "Secret", "atoll-hub-gossip").Data["keys"]; len(keys) != 45 {
		t.Errorf("%d bytes of keys", len(keys))
	}
	if pdb := as[policyv1.PodDisruptionBudget](t, objects, "PodDisruptionBudget", "atoll-hub").Spec; pdb.MaxUnavailable.IntValue() != 1 {
		t.Errorf("budget %+v", pdb)
	}
	policy := as[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy", "atoll-hub").Spec
	if len(policy.Ingress) != 4 || len(policy.Egress) != 3 || policy.Egress[1].Ports[0].Port.IntValue() != 2379 {
		t.Errorf("in %+v, out %+v", policy.Ingress, policy.Egress)
	}
	if own := renderHub(t, replicated+"gossip: {secretName: keys}").Find("Secret", "atoll-hub-gossip"); own != nil {
		t.Error("a Secret is made beside the one that is named")
	}
	one := renderHub(t, "store: {etcd: {endpoints: ['https://etcd:2379']}}")
	if set := as[appsv1.StatefulSet](t, one, "StatefulSet", "atoll-hub").Spec; *set.Replicas != 1 ||
		slices.Contains(set.Template.Spec.Containers[0].Args, "--peer-listen=:8444") || one.Find("Service", "atoll-hub-peers") != nil {
		t.Errorf("one replica on etcd: %+v", set.Template.Spec.Containers[0].Args)
	}
}

func TestHubMigration(t *testing.T) {
	const etcd = `etcd: {endpoints: ["https://etcd-0:2379"], tlsSecretName: etcd-client, userSecretName: etcd-user}`
	for to, want := range map[string][]string{
		"etcd":  {"--from=bbolt:/var/lib/atoll-hub", "--to=etcd:https://etcd-0:2379"},
		"bbolt": {"--from=etcd:https://etcd-0:2379", "--to=bbolt:/var/lib/atoll-hub", "--force"},
	} {
		objects := renderHub(t, "encryption: {secretName: sealing}\nmigrate: {to: "+to+", "+etcd+"}")
		pod := as[batchv1.Job](t, objects, "Job", "atoll-hub-migrate-to-"+to).Spec.Template
		want = append(want, "migrate", "--online", "--etcd-prefix=/atoll", "--etcd-ca-file=/etc/atoll/etcd/ca.crt",
			"--etcd-cert-file=/etc/atoll/etcd/tls.crt", "--etcd-key-file=/etc/atoll/etcd/tls.key", "--etcd-user-file=/etc/atoll/etcd-user/user",
			"--encryption-key-file=/etc/atoll/encryption/keys.yaml")
		for _, arg := range want {
			if !slices.Contains(pod.Spec.Containers[0].Args, arg) {
				t.Errorf("to %s: no argument %s in %v", to, arg, pod.Spec.Containers[0].Args)
			}
		}
		i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "data" })
		if claim := pod.Spec.Volumes[i].PersistentVolumeClaim; claim == nil || claim.ClaimName != "data-atoll-hub-0" {
			t.Errorf("to %s: volume %+v", to, pod.Spec.Volumes[i])
		}
		if (pod.Spec.Affinity != nil) != (to == "etcd") {
			t.Errorf("to %s: affinity %+v", to, pod.Spec.Affinity)
		}
		selector := as[corev1.Service](t, objects, "Service", "atoll-hub").Spec.Selector
		if labels.SelectorFromSet(selector).Matches(labels.Set(pod.Labels)) {
			t.Errorf("to %s: the hub's Service finds the Job's Pod by %v", to, selector)
		}
	}
}

func TestHubPodDisruptionBudget(t *testing.T) {
	pdb := as[policyv1.PodDisruptionBudget](t, renderHub(t, everything), "PodDisruptionBudget", "atoll-hub").Spec
	if pdb.MinAvailable.IntValue() != 1 || *pdb.UnhealthyPodEvictionPolicy != policyv1.AlwaysAllow {
		t.Errorf("budget %+v", pdb)
	}
}

func TestHubCertificate(t *testing.T) {
	certificate := renderHub(t, everything).Find("Certificate", "atoll-hub")
	for path, want := range map[string]any{
		"secretName":  "atoll-hub-tls",
		"uris":        []any{"spiffe://atoll.navix.sh/hub"},
		"usages":      []any{"digital signature", "server auth", "client auth"},
		"ipAddresses": []any{"192.0.2.7"},
		"duration":    "720h", "renewBefore": "144h",
		"issuerRef": map[string]any{"name": "federation", "kind": "ClusterIssuer", "group": "cert-manager.io"},
		"dnsNames": []any{
			"atoll-hub", "atoll-hub.atoll-system", "atoll-hub.atoll-system.svc", "atoll-hub.atoll-system.svc.cluster.local",
			"atoll-hub-link", "atoll-hub-link.atoll-system", "atoll-hub-link.atoll-system.svc", "atoll-hub-link.atoll-system.svc.cluster.local",
			"*.sandboxes.example.org", "hub.example.org",
		},
	} {
		got, _, err := unstructured.NestedFieldNoCopy(certificate.Object, "spec", path)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", path, err, diff)
		}
	}
	named := renderHub(t, "tls: {secretName: mine, certManager: {enabled: true, issuerRef: {name: federation}}}")
	into, _, err := unstructured.NestedString(named.Find("Certificate", "atoll-hub").Object, "spec", "secretName")
	if err != nil || into != "mine" {
		t.Errorf("the certificate goes to %q (%v), the Pod reads %q", into, err, "mine")
	}
}

func TestHubServiceMonitor(t *testing.T) {
	objects := renderHub(t, everything)
	monitor := objects.Find("ServiceMonitor", "atoll-hub")
	if monitor.GetLabels()["release"] != "prometheus" {
		t.Errorf("labels %v", monitor.GetLabels())
	}
	selector, _, err := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
	must.Succeed(t, err)
	endpoints, _, err := unstructured.NestedSlice(monitor.Object, "spec", "endpoints")
	if diff := cmp.Diff([]any{map[string]any{"port": "metrics", "interval": "10s", "honorLabels": true}}, endpoints); err != nil ||
		diff != "" {
		t.Errorf("endpoints: %v (-want +got):\n%s", err, diff)
	}
	service := as[corev1.Service](t, objects, "Service", "atoll-hub-metrics")
	if !labels.SelectorFromSet(selector).Matches(labels.Set(service.Labels)) || service.Spec.Ports[0].Name != "metrics" {
		t.Errorf("no Service has what the monitor looks for: %v", selector)
	}
}

// TestHubCA: a hub with a CA of its own needs no Secret for its certificate, and names what workers dial first.
func TestHubCA(t *testing.T) {
	pod := as[appsv1.StatefulSet](t, renderHub(t, "ca: {enabled: true, hubNames: [hub.example.org], approve: manual}"),
		"StatefulSet", "atoll-hub").Spec.Template.Spec
	args := strings.Join(pod.Containers[0].Args, " ")
	wantText(t, "the arguments", args, "--hub-names=hub.example.org,atoll-hub-link.atoll-system.svc,", "--approve=manual")
	if strings.Contains(args, "--tls-") || slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "tls" }) {
		t.Errorf("it has certificate files: %s", args)
	}
}
