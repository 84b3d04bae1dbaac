// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/charts/harness"
	"navix.sh/atoll/e2e/must"
)

// allOfWorker turns on what is off by default.
const allOfWorker = `
hub: {address: "hub.example.org:30443", name: hub.internal}
image: {registry: registry.example/atoll/, tag: v9}
imagePullSecrets: [{name: pull}]
tls: {certManager: {enabled: true, issuerRef: {name: federation, kind: ClusterIssuer}}}
extraArgs: [--kubeconfig=]
history: {volume: {ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}}
podAnnotations: {example.org/a: b}
podLabels: {example.org/c: d}
nodeSelector: {disk: fast}
tolerations: [{key: worker, operator: Exists}]
affinity: {podAntiAffinity: {}}
topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
priorityClassName: important
networkPolicy:
  metricsFrom: [{namespaceSelector: {}}]
  apiServerPorts: [16443]
  extraIngress: [{ports: [{port: 8082}]}]
  extraEgress: [{ports: [{port: 3128}]}]
serviceMonitor: {enabled: true, interval: 10s, labels: {release: prometheus}}
tracing: {endpoint: "http://collector.monitoring:4317", sampleRatio: 0.05, headersSecret: collector}
audit: {to: [stdout, strict]}
prometheusRule: {enabled: true, labels: {release: prometheus}}
teamQuotas: {enabled: true, teams: {ml: {maxReplicas: 40, cpu: "80", memory: 256Gi}, _default: {maxReplicas: 10}}}
adoptPools: label
pullSecrets: true
sandboxNetwork: {mode: cilium, egress: [dns, 10.0.0.0/8 443]}
podFields: {templates: {gpu: [hostPath]}, namespaces: {prod: [privileged, image]}, runtimeClasses: [gvisor]}
rivalLeases: [box-system/box, box-system/old]
instanceTypes:
  c2.small: {requests: {cpu: 500m, memory: 1Gi}, limits: {cpu: 1}, multiplier: {min: 1, max: 8}}
  gpu: {limits: {nvidia.com/gpu: 1}}
`

func renderWorker(t *testing.T, values string) harness.Objects {
	t.Helper()
	objects, err := helm.Template(t.Context(), workerRelease(values))
	must.Succeed(t, err)
	return objects
}

func TestWorkerRefusesValues(t *testing.T) {
	wantRefusals(t, workerRelease(""), "", map[string]string{
		"replicas: 2":            "missing property 'clusterID'",
		"clusterID: East":        "'/clusterID': 'East' does not match pattern",
		"clusterID: -east":       "'/clusterID'",
		"clusterID: east-":       "'/clusterID'",
		"clusterID: " + long(31): "'/clusterID'",
	})
	wantRefusals(t, workerRelease(""), "clusterID: e\n", map[string]string{
		"clusterId: east":                                                    "additional properties 'clusterId' not allowed",
		"hub: {address: hub.example.org}":                                    "'/hub/address'",
		"hub: {address: 'https://hub:8443'}":                                 "'/hub/address'",
		"hub: {port: 8443}":                                                  "'/hub': additional properties 'port' not allowed",
		"tls: {certManager: {enabled: true}}":                                "'/tls/certManager/issuerRef/name'",
		"tls: {certManager: {uris: [x]}}":                                    "'/tls/certManager': additional properties 'uris' not allowed",
		"tls: {certManager: {duration: 30d}}":                                "'/tls/certManager/duration'",
		"tls: {secretName: Not_A_Name}":                                      "'/tls/secretName'",
		"replicas: '2'":                                                      "'/replicas': got string, want ",
		"queueCapacity: 0":                                                   "'/queueCapacity'",
		"teamQuotas: {teams: {ml: {maxReplicas: -1}}}":                       "'/teamQuotas/teams/ml/maxReplicas'",
		"teamQuotas: {teams: {ml: {gpus: 1}}}":                               "'/teamQuotas/teams/ml': additional properties 'gpus' not allowed",
		"teamQuotas: {teams: {'*': {}}}":                                     "at '': invalid propertyName '*'",
		"instanceTypes: {small: {cpu: 1}}":                                   "'/instanceTypes/small': additional properties 'cpu' not allowed",
		"instanceTypes: {small: {multiplier: {min: 1}}}":                     "'/instanceTypes/small'",
		"instanceTypes: {small: {requests: {cpu: 1}, multiplier: {min: 0}}}": "'/instanceTypes/small/multiplier/min'",

		"namespaces: [Prod]":                                                "'/namespaces/0'",
		"namespaces: [a, a]":                                                "'/namespaces': items at 0 and 1 are equal",
		"podFields: {templates: {gpu: [root]}}":                             "'/podFields/templates/gpu/0'",
		"podFields: {namespaces: {'*': [hostPath]}}":                        "at '': invalid propertyName '*'",
		"sandboxNetwork: {mode: calico}":                                    "'/sandboxNetwork/mode'",
		"sandboxNetwork: {egress: ['a,b']}":                                 "'/sandboxNetwork/egress/0'",
		"history: {records: 0}":                                             "'/history/records'",
		"history: {days: 7}":                                                "'/history': additional properties 'days' not allowed",
		"logLevel: loud":                                                    "'/logLevel': value must be one of 'debug', 'info', 'warn', 'error'",
		"extraArgs: [listen]":                                               "'/extraArgs/0'",
		"image: {pullPolicy: Sometimes}":                                    "'/image/pullPolicy'",
		"crds: {keep: false}":                                               "'/crds': additional properties 'keep' not allowed",
		"admissionPolicies: off":                                            "'/admissionPolicies': got boolean, want object",
		"networkPolicy: {apiServerPorts: []}":                               "'/networkPolicy/apiServerPorts'",
		"networkPolicy: {apiServerPorts: [https]}":                          "'/networkPolicy/apiServerPorts/0'",
		"tracing: {endpoint: 'collector:4317'}":                             "'/tracing/endpoint'",
		"tracing: {protocol: grpc}":                                         "'/tracing': additional properties 'protocol' not allowed",
		"serviceMonitor: {interval: often}":                                 "'/serviceMonitor/interval'",
		"resources: {limit: {memory: 1Gi}}":                                 "'/resources': additional properties 'limit' not allowed",
		"podLabels: {a: 1}":                                                 "'/podLabels/a': got number, want string",
		"terminationGracePeriodSeconds: 1":                                  "'/terminationGracePeriodSeconds'",
		"hub: {address: '[2001:db8::1]:8443'}\npodSecurityContext: enabled": "'/podSecurityContext': got string, want object",
	})
}

func long(n int) string { return strings.Repeat("e", n) }

func TestWorkerRendersWhatIsAskedFor(t *testing.T) {
	always := map[string]int{
		"ServiceAccount": 3, "ClusterRole": 3, "ClusterRoleBinding": 3, "Role": 1, "RoleBinding": 1, "Deployment": 1, "Service": 1,
		"CustomResourceDefinition": 3, "ValidatingAdmissionPolicy": 10, "ValidatingAdmissionPolicyBinding": 11, "PodDisruptionBudget": 1,
		"NetworkPolicy": 1,
	}
	without := func(more map[string]int, kinds ...string) map[string]int {
		out := maps.Clone(always)
		maps.DeleteFunc(out, func(kind string, _ int) bool { return slices.Contains(kinds, kind) })
		maps.Copy(out, more)
		return out
	}
	for values, want := range map[string]map[string]int{
		"": always,
		allOfWorker: without(map[string]int{
			"Certificate": 1, "ServiceMonitor": 1, "PrometheusRule": 1, "ConfigMap": 2, "ClusterRole": 5, "ClusterRoleBinding": 5,
		}),
		"crds: {install: false}":                                 without(nil, "CustomResourceDefinition"),
		"admissionPolicies: {enabled: false}":                    without(nil, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
		"pdb: {enabled: false}\nnetworkPolicy: {enabled: false}": without(nil, "PodDisruptionBudget", "NetworkPolicy"),
		"pullSecrets: true":                                      without(map[string]int{"ClusterRole": 4, "ClusterRoleBinding": 4}),
		"podFields: {enabled: false}": without(map[string]int{
			"ValidatingAdmissionPolicy": 9, "ValidatingAdmissionPolicyBinding": 10,
		}),
		"hookSecrets: true": without(map[string]int{"ClusterRole": 4, "ClusterRoleBinding": 4}),
		"sandboxSecrets: [a/x, a/y, b/*]": without(map[string]int{
			"Role": always["Role"] + 2, "RoleBinding": always["RoleBinding"] + 2,
		}),
		"serveKubernetes: {enabled: true}\nhub: {address: hub:8443}": without(map[string]int{
			"ClusterRole": 4, "ClusterRoleBinding": 4, "ServiceAccount": 4, "Role": 2, "RoleBinding": 2,
		}),
		// Without a hub, a certificate is for the other replicas.
		"tls: {certManager: {enabled: true, issuerRef: {name: x}}}": without(map[string]int{"Certificate": 1}),
	} {
		if diff := cmp.Diff(want, kindsOf(renderWorker(t, values))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", values, diff)
		}
	}
}

// TestInstanceTypesAreWhatTheWorkerReads: one key a type, with what package instances of the worker reads in it.
func TestInstanceTypesAreWhatTheWorkerReads(t *testing.T) {
	rendered := renderWorker(t, allOfWorker).Find("ConfigMap", "atoll-instance-types")
	if rendered == nil {
		t.Fatal("the chart makes no instance types")
	}
	data, _, err := unstructured.NestedStringMap(rendered.Object, "data")
	want := map[string]string{
		"c2.small": "limits:\n  cpu: 1\nmultiplier:\n  max: 8\n  min: 1\nrequests:\n  cpu: 500m\n  memory: 1Gi\n",
		"gpu":      "limits:\n  nvidia.com/gpu: 1\n",
	}
	if diff := cmp.Diff(want, data); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestWorkerHasOneSource: what planes apply with kubectl is what the chart installs, but for namespace and cluster.
func TestWorkerHasOneSource(t *testing.T) {
	release := workerRelease("")
	release.Namespace = "elsewhere"
	release.Values = "clusterID: north\npullSecrets: true\nhookSecrets: true\nserveKubernetes: {enabled: true}\n" +
		"sandboxNetwork: {mode: cilium}\ntls: {fromHub: true}\nhub: {address: hub:8443}"
	rendered, err := helm.Template(t.Context(), release)
	must.Succeed(t, err)
	paths, err := filepath.Glob(filepath.Join(helm.Chart("worker"), "files", "*", "*.yaml"))
	must.Succeed(t, err)
	seen := 0
	for _, path := range paths {
		if filepath.Base(filepath.Dir(path)) == "monitoring" {
			continue // no objects: see TestMonitoringHasOneSource
		}
		content, err := os.ReadFile(path)
		must.Succeed(t, err)
		text := strings.NewReplacer("atoll-system", "elsewhere", "CLUSTER_ID", "north").Replace(string(content))
		for document := range strings.SplitSeq(text, "\n---\n") {
			want := &unstructured.Unstructured{}
			must.Succeed(t, yaml.Unmarshal([]byte(document), &want.Object))
			if want.GetKind() == "Namespace" {
				continue
			}
			seen++
			got := rendered.Find(want.GetKind(), want.GetName())
			if got == nil {
				t.Errorf("the chart lacks %s %s", want.GetKind(), want.GetName())
				continue
			}
			if want.GetKind() == "CustomResourceDefinition" {
				annotations := want.GetAnnotations()
				annotations["helm.sh/resource-policy"] = "keep"
				want.SetAnnotations(annotations)
			}
			if diff := cmp.Diff(want.Object, got.Object); diff != "" {
				t.Errorf("%s %s (-file +chart):\n%s", want.GetKind(), want.GetName(), diff)
			}
		}
	}
	if seen < 20 {
		t.Errorf("compared %d objects only", seen)
	}
}

// The rights to read Secrets go together with the flags that make use of them. Those for hooks are off by default.
func TestWorkerReadsSecretsOnlyIfAsked(t *testing.T) {
	for values, asked := range map[string][]string{"": nil, "pullSecrets: true": {"pull-secrets"}, "hookSecrets: true": {"hook-secrets"}} {
		objects := renderWorker(t, values)
		args := as[appsv1.Deployment](t, objects, "Deployment", "atoll-worker").Spec.Template.Spec.Containers[0].Args
		for kind, flag := range map[string]bool{
			"pull-secrets": !slices.Contains(args, "--pull-secrets=false"), "hook-secrets": slices.Contains(args, "--hook-secrets"),
		} {
			want := slices.Contains(asked, kind)
			role := objects.Find("ClusterRole", "atoll-worker-"+kind) != nil
			bound := objects.Find("ClusterRoleBinding", "atoll-worker-"+kind) != nil
			if role != want || bound != want || flag != want {
				t.Errorf("%q: %s: role %t, bound %t, flag %t", values, kind, role, bound, flag)
			}
		}
		manifest, err := objects.Manifest()
		must.Succeed(t, err)
		if strings.Contains(manifest, "- secrets\n") != (asked != nil) {
			t.Errorf("%q: rights to Secrets are there, or lack", values)
		}
	}
}

// The daemon's image stands beside the worker's, unless it is named or turned off.
func TestWorkerDeliversTheDaemonOfItsRelease(t *testing.T) {
	for values, want := range map[string]string{
		"": "atoll-sandboxd:0.1.0",
		"image: {registry: registry.example/, repository: team/atoll-worker, tag: 'v9@sha256:00'}": "registry.example/team/atoll-sandboxd:v9",
		"sandboxd: {image: other/daemon:v1}": "other/daemon:v1",
		"sandboxd: {enabled: false}":         "",
	} {
		var got []string
		pod := as[appsv1.Deployment](t, renderWorker(t, values), "Deployment", "atoll-worker").Spec.Template.Spec
		for _, arg := range pod.Containers[0].Args {
			if image, ok := strings.CutPrefix(arg, "--sandboxd-image="); ok {
				got = append(got, image)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: --sandboxd-image %q, want %q", values, got, want)
		}
	}
}

// Keys are mounted where the flag says, as a whole folder that follows its Secret, and not at all by default.
func TestEncryptionKeysAreMounted(t *testing.T) {
	for values, want := range map[string]bool{"": false, "history: {encryption: {secretName: keys}}": true} {
		checkKeys(t, values, want, &as[appsv1.Deployment](t, renderWorker(t, values), "Deployment", "atoll-worker").Spec.Template.Spec)
	}
	for values, want := range map[string]bool{"": false, "encryption: {secretName: keys}": true} {
		checkKeys(t, values, want, &as[appsv1.StatefulSet](t, renderHub(t, values), "StatefulSet", "atoll-hub").Spec.Template.Spec)
	}
}

func checkKeys(t *testing.T, values string, want bool, pod *corev1.PodSpec) {
	t.Helper()
	flag := slices.Contains(pod.Containers[0].Args, "--encryption-key-file=/etc/atoll/encryption/keys.yaml")
	mounted := slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.Name == "encryption" && m.MountPath == "/etc/atoll/encryption" && m.SubPath == "" && m.ReadOnly
	})
	volume := slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
		return v.Name == "encryption" && v.Secret != nil && v.Secret.SecretName == "keys"
	})
	if flag != want || mounted != want || volume != want {
		t.Errorf("%q: flag %t, mounted %t, volume %t", values, flag, mounted, volume)
	}
}

func TestWorkerPod(t *testing.T) {
	alone := as[appsv1.Deployment](t, renderWorker(t, ""), "Deployment", "atoll-worker").Spec
	all := as[appsv1.Deployment](t, renderWorker(t, allOfWorker), "Deployment", "atoll-worker").Spec
	if *alone.Replicas != 1 || alone.Template.Spec.Containers[0].Image != "atoll-worker:0.1.0" ||
		all.Template.Spec.Containers[0].Image != "registry.example/atoll/atoll-worker:v9" {
		t.Errorf("%d replicas of %s and %s", *alone.Replicas, alone.Template.Spec.Containers[0].Image, all.Template.Spec.Containers[0].Image)
	}
	serving := []string{"--metrics-listen=:9090", "--health-listen=:8081", "--queue-capacity=8192"}
	const from = "--sandbox-network-from=app.kubernetes.io/name=atoll-worker,app.kubernetes.io/instance=atoll-worker"
	closed := []string{
		"--pull-secrets=false", "--sandboxd-image=atoll-sandboxd:0.1.0", "--sandbox-network-policy=kubernetes", from,
	}
	keeping := []string{
		"--team-quotas", "--sandboxd-image=registry.example/atoll/atoll-sandboxd:v9", "--sandbox-network-policy=cilium", from,
		"--sandbox-egress=dns,10.0.0.0/8 443", "--adopt-pools=label",
		"--rival-leases=box-system/box,box-system/old",
	}
	history := []string{"--data-dir=/var/lib/atoll-worker", "--history-retention=168h", "--history-records=100000"}
	peers, logs := []string{"--peer-listen=:8444", "--peer-address=[$(POD_IP)]:8444"}, []string{"--log-level=info", "--log-format=json"}
	identity := []string{"--cluster-id=east", "--namespace=atoll-system"}
	toHub := []string{
		"--hub=hub.example.org:30443", "--tls-cert-file=/etc/atoll/tls/tls.crt", "--tls-key-file=/etc/atoll/tls/tls.key",
		"--tls-ca-file=/etc/atoll/tls/ca.crt", "--hub-name=hub.internal",
	}
	wanted := slices.Concat(identity, serving, closed, history, logs, []string{"--audit=none"})
	if diff := cmp.Diff(wanted, alone.Template.Spec.Containers[0].Args); diff != "" {
		t.Errorf("arguments without a hub (-want +got):\n%s", diff)
	}
	traces := []string{"--audit=stdout,strict", "--otlp-endpoint=http://collector.monitoring:4317", "--kubeconfig="}
	wanted = slices.Concat(identity, toHub, serving, keeping, history, peers, logs, traces)
	if diff := cmp.Diff(wanted, all.Template.Spec.Containers[0].Args); diff != "" {
		t.Errorf("arguments with a hub (-want +got):\n%s", diff)
	}
	pod := all.Template.Spec
	if env := pod.Containers[0].Env[0]; env.Name != "POD_IP" || env.ValueFrom.FieldRef.FieldPath != "status.podIP" {
		t.Errorf("its address is %v", env)
	}
	if v := alone.Template.Spec.Volumes; len(v) != 1 || v[0].EmptyDir == nil ||
		v[0].Name != alone.Template.Spec.Containers[0].VolumeMounts[0].Name ||
		pod.Volumes[0].Ephemeral == nil || pod.Volumes[1].Secret.SecretName != "atoll-worker-tls" {
		t.Errorf("volumes without a hub %v, with one %v", alone.Template.Spec.Volumes, pod.Volumes)
	}
	if pod.NodeSelector["disk"] != "fast" || len(pod.Tolerations) != 1 || pod.Affinity == nil ||
		pod.TopologySpreadConstraints[0].TopologyKey != "zone" ||
		pod.PriorityClassName != "important" || pod.ImagePullSecrets[0].Name != "pull" ||
		all.Template.Annotations["example.org/a"] != "b" || all.Template.Labels["example.org/c"] != "d" {
		t.Errorf("the Pod lacks what values ask for: %+v", pod)
	}
	if spread := alone.Template.Spec.TopologySpreadConstraints; spread[0].WhenUnsatisfiable != corev1.ScheduleAnyway ||
		!labels.SelectorFromSet(spread[0].LabelSelector.MatchLabels).Matches(labels.Set(alone.Template.Labels)) {
		t.Errorf("spread by default: %+v", spread)
	}
	if rolling := alone.Strategy.RollingUpdate; rolling.MaxUnavailable.IntValue() != 0 || rolling.MaxSurge.IntValue() != 1 {
		t.Errorf("an upgrade takes a replica away before another is there: %+v", rolling)
	}
}

// I2: there are several replicas by default only where they can have copies of each other's records; without a hub that
// takes a certificate of their own.
func TestWorkerReplicasHaveCopies(t *testing.T) {
	for values, want := range map[string]struct {
		replicas int32
		copies   bool
	}{
		"":                            {1, false},
		"replicas: 3":                 {3, false}, // of which the notes warn
		"hub: {address: 'h:443'}":     {2, true},
		"tls: {secretName: replicas}": {2, true},
		"tls: {certManager: {enabled: true, issuerRef: {name: x}}}": {2, true},
		"replicas: 0\nhub: {address: 'h:443'}":                      {0, true},
	} {
		objects := renderWorker(t, values)
		spec := as[appsv1.Deployment](t, objects, "Deployment", "atoll-worker").Spec
		args := spec.Template.Spec.Containers[0].Args
		if *spec.Replicas != want.replicas || slices.Contains(args, "--peer-listen=:8444") != want.copies ||
			slices.Contains(args, "--tls-ca-file=/etc/atoll/tls/ca.crt") != want.copies || (len(spec.Template.Spec.Volumes) == 2) != want.copies {
			t.Errorf("%q: %d replicas, %q, volumes %v", values, *spec.Replicas, args, spec.Template.Spec.Volumes)
		}
		open := 0
		policy := as[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy", "atoll-worker").Spec
		for _, rule := range policy.Egress {
			if len(rule.Ports) == 1 && rule.Ports[0].Port.IntValue() == 8444 {
				open++
			}
		}
		for _, rule := range policy.Ingress {
			if rule.Ports[0].Port.StrVal == "peers" {
				open++
			}
		}
		if (open == 2) != want.copies {
			t.Errorf("%q: the NetworkPolicy has %d rules for replicas", values, open)
		}
	}
}

// What refers to something by name or label finds it.
func TestWorkerPartsFitTogether(t *testing.T) {
	for values, fullname := range map[string]string{
		"": "atoll-worker", allOfWorker: "atoll-worker", "nameOverride: x": "atoll-worker-x", "fullnameOverride: other": "other",
	} {
		objects := renderWorker(t, values)
		deployment := as[appsv1.Deployment](t, objects, "Deployment", fullname)
		pod := labels.Set(deployment.Spec.Template.Labels)
		ports := map[string]bool{}
		for _, port := range deployment.Spec.Template.Spec.Containers[0].Ports {
			ports[port.Name] = true
		}
		for what, selector := range map[string]map[string]string{
			"Deployment":          deployment.Spec.Selector.MatchLabels,
			"Service":             as[corev1.Service](t, objects, "Service", fullname+"-metrics").Spec.Selector,
			"PodDisruptionBudget": as[policyv1.PodDisruptionBudget](t, objects, "PodDisruptionBudget", fullname).Spec.Selector.MatchLabels,
			"NetworkPolicy":       as[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy", fullname).Spec.PodSelector.MatchLabels,
		} {
			if len(selector) == 0 || !labels.SelectorFromSet(selector).Matches(pod) {
				t.Errorf("%s: the %s does not select the Pod", values, what)
			}
		}
		probes := deployment.Spec.Template.Spec.Containers[0]
		if !ports[probes.LivenessProbe.HTTPGet.Port.StrVal] || !ports[probes.ReadinessProbe.HTTPGet.Port.StrVal] {
			t.Errorf("%s: probes ask ports that the Pod does not have", values)
		}
		account := deployment.Spec.Template.Spec.ServiceAccountName
		if objects.Find("ServiceAccount", account) == nil {
			t.Errorf("%s: there is no ServiceAccount %s", values, account)
		}
	}
}

func TestWorkerNetworkPolicy(t *testing.T) {
	egress := func(values string) (ports []int) {
		for _, rule := range as[networkingv1.NetworkPolicy](t, renderWorker(t, values), "NetworkPolicy", "atoll-worker").Spec.Egress {
			for _, port := range rule.Ports {
				ports = append(ports, port.Port.IntValue())
			}
		}
		return ports
	}
	for values, want := range map[string][]int{
		"":                                     {53, 53, 443, 6443},
		"hub: {address: h:443}":                {53, 53, 443, 6443, 443, 8443, 8444},
		"hub: {address: '[2001:db8::1]:8443'}": {53, 53, 443, 6443, 8443, 8444},
		"hub: {address: 'a:30443,[2001:db8::1]:443,b:30443'}": {53, 53, 443, 6443, 30443, 443, 8443, 8444},
		allOfWorker: {53, 53, 16443, 30443, 8443, 8444, 4317, 3128},
	} {
		if diff := cmp.Diff(want, egress(values)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", values, diff)
		}
	}
	// Hooks and readiness checks go to the sandboxes of every namespace, by the label that each of them is born with.
	sandboxes := slices.IndexFunc(as[networkingv1.NetworkPolicy](t, renderWorker(t, ""), "NetworkPolicy", "atoll-worker").Spec.Egress,
		func(rule networkingv1.NetworkPolicyEgressRule) bool {
			return len(rule.Ports) == 0 && len(rule.To) == 1 && rule.To[0].NamespaceSelector != nil && rule.To[0].NamespaceSelector.Size() == 0 &&
				maps.Equal(rule.To[0].PodSelector.MatchLabels, map[string]string{v1alpha1.ManagedByLabelKey: v1alpha1.ManagedBySandboxAPIServer})
		})
	if sandboxes < 0 {
		t.Error("out: no way to the sandboxes")
	}
	ingress := as[networkingv1.NetworkPolicy](t, renderWorker(t, allOfWorker), "NetworkPolicy", "atoll-worker").Spec.Ingress
	if len(ingress) != 3 || len(ingress[0].From) != 1 || ingress[1].From[0].PodSelector == nil || ingress[2].Ports[0].Port.IntValue() != 8082 {
		t.Errorf("in: %+v", ingress)
	}
}

func TestWorkerCertificateAndMonitor(t *testing.T) {
	objects := renderWorker(t, allOfWorker)
	certificate := objects.Find("Certificate", "atoll-worker")
	want := map[string]any{
		"secretName": "atoll-worker-tls", "uris": []any{"spiffe://atoll.navix.sh/cluster/east"},
		"usages": []any{"digital signature", "client auth"}, "duration": "720h", "renewBefore": "144h",
		"privateKey": map[string]any{"algorithm": "ECDSA", "size": float64(256), "rotationPolicy": "Always"},
		"issuerRef":  map[string]any{"name": "federation", "kind": "ClusterIssuer", "group": "cert-manager.io"},
	}
	if diff := cmp.Diff(want, certificate.Object["spec"]); diff != "" {
		t.Errorf("certificate (-want +got):\n%s", diff)
	}
	monitor := objects.Find("ServiceMonitor", "atoll-worker")
	selector, _, err := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
	must.Succeed(t, err)
	service := as[corev1.Service](t, objects, "Service", "atoll-worker-metrics")
	if monitor.GetLabels()["release"] != "prometheus" || !labels.SelectorFromSet(selector).Matches(labels.Set(service.Labels)) ||
		service.Spec.Ports[0].Name != "metrics" {
		t.Errorf("monitor %v finds no Service by %v", monitor.GetLabels(), selector)
	}
}

// TestMetricsHavePeers: the port of metrics is open to configured peers, by default to a Prometheus beside it, and health to none.
func TestMetricsHavePeers(t *testing.T) {
	prometheus := &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "prometheus"}}
	beside := []networkingv1.NetworkPolicyPeer{{PodSelector: prometheus}}
	all := []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}}
	for chart, render := range map[string]func(*testing.T, string) harness.Objects{"atoll-worker": renderWorker, "atoll-hub": renderHub} {
		for values, want := range map[string][]networkingv1.NetworkPolicyPeer{
			"":                                 beside,
			"networkPolicy: {metricsFrom: []}": nil,
			"networkPolicy: {metricsFrom: [{namespaceSelector: {}}]}": all,
		} {
			var peers []networkingv1.NetworkPolicyPeer
			policy := as[networkingv1.NetworkPolicy](t, render(t, values), "NetworkPolicy", chart).Spec
			for _, rule := range policy.Ingress {
				for _, port := range rule.Ports {
					if port.Port.StrVal == "metrics" {
						peers = append(peers, rule.From...)
						if len(rule.From) == 0 {
							t.Errorf("%s with %q: metrics are open to all", chart, values)
						}
					}
					if port.Port.StrVal == "health" || port.Port.IntValue() == 8081 {
						t.Errorf("%s with %q: health is open: %+v", chart, values, rule)
					}
				}
				if len(rule.Ports) == 0 {
					t.Errorf("%s with %q: all ports are open: %+v", chart, values, rule)
				}
			}
			if !slices.Contains(policy.PolicyTypes, networkingv1.PolicyTypeIngress) || !cmp.Equal(want, peers) {
				t.Errorf("%s with %q: peers %+v", chart, values, peers)
			}
		}
	}
}

// TestWorkerOfNamespaces: with namespaces, only what no namespace has is granted for the cluster, and nothing of it is a Pod, a Secret or
// an Env.
func TestWorkerOfNamespaces(t *testing.T) {
	objects := renderWorker(t, "namespaces: [prod, dev]\npullSecrets: true\nrivalLeases: [box-system/box]\nsandboxNetwork: {mode: cilium}")
	args := as[appsv1.Deployment](t, objects, "Deployment", "atoll-worker").Spec.Template.Spec.Containers[0].Args
	if !slices.Contains(args, "--namespaces=prod,dev") {
		t.Errorf("arguments %q", args)
	}
	var wide []string
	bound := map[string][]string{}
	for _, o := range objects {
		switch o.GetKind() {
		case "ClusterRoleBinding":
			wide = append(wide, as[rbacv1.ClusterRoleBinding](t, objects, "ClusterRoleBinding", o.GetName()).RoleRef.Name)
		case "RoleBinding":
			bound[o.GetNamespace()] = append(bound[o.GetNamespace()], o.GetName())
		}
	}
	each := []string{"atoll-catalog-in-namespace", "atoll-sync-in-namespace", "atoll-worker-cilium-in-namespace", "atoll-worker-in-namespace",
		"atoll-worker-pull-secrets-in-namespace"}
	for _, names := range bound {
		slices.Sort(names)
	}
	wanted := map[string][]string{"prod": each, "dev": each, "box-system": {"atoll-worker-foreign-leases"}, "atoll-system": {"atoll-worker"}}
	if diff := cmp.Diff(wanted, bound); diff != "" {
		t.Errorf("RoleBindings (-want +got):\n%s", diff)
	}
	if slices.Sort(wide); !slices.Equal(wide, []string{"atoll-catalog", "atoll-worker"}) {
		t.Errorf("bound for the cluster: %q", wide)
	}
	granted := map[string]string{}
	for _, rule := range as[rbacv1.ClusterRole](t, objects, "ClusterRole", "atoll-worker").Rules {
		for _, resource := range rule.Resources {
			granted[resource+" "+strings.Join(rule.ResourceNames, ",")] = strings.Join(rule.Verbs, " ")
		}
	}
	want := map[string]string{
		"nodes ": "list watch", "namespaces kube-system": "get", "namespaces prod,dev": "get",
		"sandboxtemplates ": "list watch", "sandboxtemplates/status ": "patch",
	}
	if diff := cmp.Diff(want, granted); diff != "" {
		t.Errorf("granted for the cluster (-want +got):\n%s", diff)
	}
	// Nothing is lost: the two roles together are the one of a whole cluster, but for leases, which have a role of their own.
	rights := func(all bool, roles ...string) map[string]bool {
		from, out := objects, map[string]bool{}
		if all {
			from = renderWorker(t, "")
		}
		for _, name := range roles {
			for _, rule := range as[rbacv1.ClusterRole](t, from, "ClusterRole", name).Rules {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						if resource != "leases" {
							out[strings.Join(rule.APIGroups, ",")+"/"+resource+" "+verb] = true
						}
					}
				}
			}
		}
		return out
	}
	if diff := cmp.Diff(rights(true, "atoll-worker"), rights(false, "atoll-worker", "atoll-worker-in-namespace")); diff != "" {
		t.Errorf("rights (-of the cluster +of namespaces):\n%s", diff)
	}
}

// The local API is served beyond loopback over TLS and to callers of the cluster alone, or not at all.
func TestWorkerLocalAPI(t *testing.T) {
	off := renderWorker(t, "clusterID: east")
	defaults := as[appsv1.Deployment](t, off, "Deployment", "atoll-worker").Spec.Template.Spec.Containers[0].Args
	if strings.Contains(strings.Join(defaults, " "), "--listen=") ||
		off.Find("ClusterRoleBinding", "atoll-system-atoll-worker-auth-delegator") != nil {
		t.Errorf("it is served by default: %s", defaults)
	}
	on := renderWorker(t, "clusterID: east\nlocalAPI: {enabled: true, tlsSecretName: api-tls}")
	spec := as[appsv1.Deployment](t, on, "Deployment", "atoll-worker").Spec.Template.Spec
	args := strings.Join(spec.Containers[0].Args, " ")
	wantText(t, "the arguments", args, "--listen=:8082 ", "--auth=kubernetes ", "--local-tls-cert-file=/etc/atoll/local-tls/tls.crt ",
		"--auth-kubernetes-audiences=atoll ")
	binding := as[rbacv1.ClusterRoleBinding](t, on, "ClusterRoleBinding", "atoll-system-atoll-worker-auth-delegator")
	if binding.Subjects[0].Name != spec.ServiceAccountName || binding.RoleRef.Name != "system:auth-delegator" {
		t.Errorf("binding %+v, ServiceAccount %s", binding, spec.ServiceAccountName)
	}
	if on.Find("Service", "atoll-worker-api") == nil {
		t.Error("there is no Service")
	}
	wantRefusals(t, workerRelease(""), "clusterID: east\n", map[string]string{"localAPI: {enabled: true}": "'/localAPI/tlsSecretName'"})
}

// E2B's port is reached by who reaches the local API, with its TLS, and by no one where it is off.
func TestWorkerServesE2B(t *testing.T) {
	const api, peers = "\nlocalAPI: {enabled: true, tlsSecretName: api-tls}", "\ntls: {secretName: a}"
	for values, want := range map[string]struct {
		args   []string
		port   int32
		sealed bool
	}{
		api:                          {},
		"\ne2b: {domain: a}" + peers: {},
		// Without E2B's port, the key is that of sandboxes' daemons.
		"\ne2b: {keySecretName: e2b}" + peers: {args: []string{"--e2b-key-file=/etc/atoll/e2b/key"}, sealed: true},
		"\ne2b: {enabled: true}" + api:        {args: []string{"--e2b-listen=:8083"}, port: 8083},
		"\ne2b: {enabled: true, port: 3000, domain: sandboxes.example.org, keySecretName: e2b}" + api + peers: {
			args: []string{"--e2b-listen=:8083", "--e2b-domain=sandboxes.example.org", "--e2b-key-file=/etc/atoll/e2b/key"},
			port: 3000, sealed: true,
		},
	} {
		objects := renderWorker(t, "clusterID: east"+values)
		pod := as[appsv1.Deployment](t, objects, "Deployment", "atoll-worker").Spec.Template.Spec
		args := slices.DeleteFunc(slices.Clone(pod.Containers[0].Args), func(arg string) bool { return !strings.HasPrefix(arg, "--e2b") })
		var port int32
		if objects.Find("Service", "atoll-worker-api") != nil {
			for _, p := range as[corev1.Service](t, objects, "Service", "atoll-worker-api").Spec.Ports {
				if p.Name == "e2b" {
					port = p.Port
				}
			}
		}
		opened := 0
		for _, rule := range as[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy", "atoll-worker").Spec.Ingress {
			for _, p := range rule.Ports {
				if p.Port.String() == "e2b" {
					opened++
				}
			}
		}
		if !slices.Equal(args, want.args) || port != want.port || opened != min(1, int(want.port)) {
			t.Errorf("%s: args %q, port %d, opened %d times", values, args, port, opened)
		}
		volume := slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "e2b" && v.Secret.SecretName == "e2b" })
		mounted := slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/etc/atoll/e2b" })
		if volume != want.sealed || mounted != want.sealed {
			t.Errorf("%s: the key is a volume: %t, and mounted: %t", values, volume, mounted)
		}
	}
	wantRefusals(t, workerRelease(""), "clusterID: east\n", map[string]string{
		"e2b: {enabled: true}":               "e2b.enabled needs localAPI.enabled",
		"e2b: {enabled: true}" + api + peers: "e2b.keySecretName is missing",
		"e2b: {port: 0}":                     "'/e2b/port'", "e2b: {domain: A}": "'/e2b/domain'",
	})
}

// TestWorkerReadsTheSecretsOfSandboxesThatAreListed: no other ones where all are listed by name, and in no other namespace.
func TestWorkerReadsTheSecretsOfSandboxesThatAreListed(t *testing.T) {
	for _, more := range []string{"", "\nnamespaces: [a, b]"} {
		objects := renderWorker(t, "sandboxSecrets: [a/x, a/y, a/x, b/x, b/llm-*]"+more)
		args := as[appsv1.Deployment](t, objects, "Deployment", "atoll-worker").Spec.Template.Spec.Containers[0].Args
		if !slices.Contains(args, "--sandbox-secrets=a/x,a/y,a/x,b/x,b/llm-*") {
			t.Errorf("the worker's arguments are %q", args)
		}
		names := map[string][]string{}
		for _, o := range objects {
			if o.GetKind() == "RoleBinding" && o.GetName() == "atoll-worker-sandbox-secrets" {
				names[o.GetNamespace()] = append(names[o.GetNamespace()], "bound")
			}
			if o.GetKind() != "Role" || o.GetName() != "atoll-worker-sandbox-secrets" {
				continue
			}
			rules, _, err := unstructured.NestedSlice(o.Object, "rules")
			must.Succeed(t, err)
			listed, _, err := unstructured.NestedStringSlice(rules[0].(map[string]any), "resourceNames")
			must.Succeed(t, err)
			names[o.GetNamespace()] = append(names[o.GetNamespace()], listed...)
		}
		if diff := cmp.Diff(map[string][]string{"a": {"x", "y", "bound"}, "b": {"bound"}}, names); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
