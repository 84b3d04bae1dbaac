// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
)

// administrator is a client of a user with every right, whom the policies do not take for the worker. What the API server warns of goes to
// warned, if that is not nil.
func administrator(t *testing.T, warned rest.WarningHandler) client.Client {
	t.Helper()
	cfg := rest.CopyConfig(east.Config())
	cfg.WarningHandler = warned
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "jane", Groups: []string{"system:masters"}}
	as, err := client.New(cfg, client.Options{})
	must.Succeed(t, err)
	return as
}

// dryRun returns a function that applies a manifest, without an effect.
func dryRun(t *testing.T, as client.Client) func(manifest string) error {
	t.Helper()
	return func(manifest string) error {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(manifest), &object.Object); err != nil {
			t.Fatalf("%v in\n%s", err, manifest)
		}
		return as.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("told"), client.ForceOwnership,
			client.DryRunAll)
	}
}

const (
	templateOf = `{apiVersion: agents.navix.sh/v1alpha1, kind: SandboxTemplate, metadata: {name: %[2]s}, spec: {template: {%[1]s}}}`
	poolOf     = `{apiVersion: agents.navix.sh/v1alpha1, kind: SandboxPool, metadata: {name: told, namespace: %[2]s}, spec: {replicas: 0, ` +
		`template: {%[1]s}}}`
	envOf = `{apiVersion: agents.navix.sh/v1alpha1, kind: SandboxEnv, metadata: {name: told, namespace: %[2]s}, ` +
		`spec: {templateRef: {name: told},
		clusters: [{clusterID: west, members: [{name: a}, {name: b, spec: {replicas: 0, template: {%[1]s}}}]}]}}`
	tame = `metadata: {annotations: {a: b}}, spec: {hostNetwork: false, serviceAccountName: default, volumes: [{name: scratch, emptyDir: {}}],
		securityContext: {sysctls: [{name: net.ipv4.tcp_syncookies, value: "1"}, {name: kernel.msgmni, value: "0"}, {name: kernel.sem, ` +
		`value: "250 32000 32 0"}], seccompProfile: {type: RuntimeDefault}, seLinuxOptions: {type: container_t}},
		initContainers: [{name: init, image: x, securityContext: {privileged: false}}],
		containers: [{name: main, image: x, ports: [{containerPort: 8000}], readinessProbe: {httpGet: {port: 8000, path: /}},
			securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]}`
)

// beyond are fields that reach beyond the Pod: what becomes of tame, and the name by which the policy refuses and allows it.
var beyond = []struct{ old, new, field string }{
	{"hostNetwork: false", "hostNetwork: true", "hostNetwork"},
	{"hostNetwork: false", "hostPID: true", "hostPID"},
	{"hostNetwork: false", "hostIPC: true", "hostIPC"},
	{"serviceAccountName: default", "serviceAccountName: admin", "serviceAccountName"},
	{"serviceAccountName: default", "serviceAccount: admin", "serviceAccountName"},
	{"emptyDir: {}", "hostPath: {path: /}", "hostPath"},
	{"containerPort: 8000}", "containerPort: 8000, hostPort: 8000}", "hostPort"},
	{"privileged: false", "privileged: true", "privileged"},
	{"allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true", "allowPrivilegeEscalation"},
	{"drop: [ALL]", "add: [SYS_ADMIN]", "capabilities"},
	{"drop: [ALL]", "drop: [ALL], add: [NET_BIND_SERVICE]", "capabilities"},
	{"privileged: false", "procMount: Unmasked", "procMount"},
	{"net.ipv4.tcp_syncookies", "kernel.msgmax", "sysctls"},
	{`kernel.msgmni, value: "0"`, `kernel.msgmni, value: "32000"`, "sysctls"},
	{"32000 32 0", "32000 32 128", "sysctls"},
	{"RuntimeDefault", "Unconfined", "seccompProfile"},
	{"privileged: false", "seccompProfile: {type: Unconfined}", "seccompProfile"},
	{"privileged: false", "appArmorProfile: {type: Unconfined}", "appArmorProfile"},
	{"{a: b}", "{container.apparmor.security.beta.kubernetes.io/main: unconfined}", "appArmorProfile"},
	{"container_t", "spc_t", "seLinuxOptions"},
	{"{type: container_t}", "{user: system_u}", "seLinuxOptions"},
	{"privileged: false", "windowsOptions: {hostProcess: true}", "hostProcess"},
	{"port: 8000, path", "host: 169.254.169.254, port: 8000, path", "probeHost"},
	{"name: init, image: x", "name: init, image: x, lifecycle: {preStop: {tcpSocket: {host: 10.0.0.1, port: 1}}}", "probeHost"},
}

const notAllowed = ": not allowed in Pods of sandboxes; remove it, or have a cluster administrator allow it in podFields"

// podFields: an editor of templates, pools or Envs gets no node, no other ServiceAccount and no privilege by them (I14).
func podFields(t *testing.T) {
	try := dryRun(t, administrator(t, nil))
	refused := func(what, manifest, want string) {
		t.Helper()
		if err := try(manifest); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nmust be refused because of %q", what, err, want)
		}
	}
	passes := func(what, manifest string) {
		t.Helper()
		if err := try(manifest); err != nil {
			t.Errorf("%s must pass: %v", what, err)
		}
	}
	for kind, manifest := range map[string]string{"template": templateOf, "pool": poolOf, "Env": envOf} {
		passes(kind, fmt.Sprintf(manifest, tame, "default"))
		for _, b := range beyond {
			text := strings.Replace(tame, b.old, b.new, 1)
			if text == tame {
				t.Fatalf("%q is not in the manifest", b.old)
			}
			refused(kind+" with "+b.new, fmt.Sprintf(manifest, text, "default"), ".spec: "+b.field+notAllowed)
		}
		passes(kind+" with any runtime class", fmt.Sprintf(manifest, strings.Replace(tame, "hostNetwork: false", "runtimeClassName: any", 1),
			"default"))
	}
	refused("two fields", fmt.Sprintf(poolOf, strings.NewReplacer("hostNetwork: false", "hostPID: true", "emptyDir: {}",
		"hostPath: {path: /}").Replace(tame), "default"),
		".spec: hostPID, hostPath"+notAllowed)
	refused("a runtime's probe", strings.Replace(fmt.Sprintf(poolOf, tame, "default"), "replicas: 0",
		"replicas: 0, runtimes: [{name: x, port: 1, readinessProbe: {httpGet: {host: 10.0.0.1, port: 1}}}]", 1),
		"probeHost"+notAllowed)
	podFieldsOfBefore(t)
	podFieldsAllowed(t, refused, passes)
}

// podFieldsOfBefore: what exists goes on (I6), and is changed only as a whole for the better.
func podFieldsOfBefore(t *testing.T) {
	const (
		patch   = "patch sandboxpool old --type=merge -p {}"
		refused = "spec.template.spec: hostNetwork, hostPath" + notAllowed
	)
	old := strings.Replace(pool("old", ""), `spec: {containers:`,
		`spec: {hostNetwork: true, volumes: [{name: v, hostPath: {path: /var/log}}], containers:`, 1)
	tell(t, []step{
		{by: worker, args: apply, stdin: old},
		{by: user, args: patch, patch: `{"spec":{"replicas":5},"metadata":{"labels":{"a":"b"}}}`},
		{by: user, args: "scale sandboxpool old --replicas=2"},
		{by: user, args: patch, patch: `{"metadata":{"annotations":{"note":"mine","agentbox.navix.sh/egress":"dns"}}}`},
		{by: user, args: patch, patch: `{"spec":{"template":{"spec":{"volumes":[{"name":"v","hostPath":{"path":"/"}}]}}}}`, refused: refused},
		{by: user, args: patch, patch: `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"evil"}]}}}}`, refused: refused},
		{by: user, args: patch, patch: `{"spec":{"idleImage":"evil"}}`, refused: refused},
		{by: user, args: patch, patch: `{"metadata":{"annotations":{"agentbox.navix.sh/allowed-images":"*"}}}`, refused: "stay as they are"},
		{by: worker, args: patch, patch: `{"spec":{"template":{"spec":{"priority":1}}}}`},
		{by: user, args: patch, patch: `{"spec":{"template":{"spec":{"hostNetwork":null,"volumes":null}}}}`},
		{by: user, args: patch, patch: `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"other"}]}}}}`},
		{by: user, args: "delete sandboxpool old"},
	})
}

// podFieldsAllowed are the chart's exceptions, which only a caller changes who may change the policy.
func podFieldsAllowed(t *testing.T, refused func(what, manifest, want string), passes func(what, manifest string)) {
	mustKubectl(t, "create", "namespace", "trusted")
	t.Cleanup(func() {
		if _, err := east.Kubectl(context.Background(), "delete", "namespace", "trusted", "--wait=false"); err != nil {
			t.Error(err)
		}
	})
	_, err := helm.In(east.Kubeconfig()).Upgrade(t.Context(), workerRelease(`
replicas: 0
podFields:
  templates: {pinned: [hostPath, runtimeClassName], free: [hostPath, image]}
  namespaces: {trusted: [hostPath, hostNetwork]}
  runtimeClasses: [gvisor, kata]
`))
	must.Succeed(t, err)
	path := strings.Replace(tame, "emptyDir: {}", "hostPath: {path: /}", 1)
	sandboxed := func(text string) string {
		return strings.Replace(text, "serviceAccountName: default", "runtimeClassName: kata", 1)
	}
	unallowed := fmt.Sprintf(templateOf, tame, "other")
	try := dryRun(t, administrator(t, nil))
	wait.For(t, 20*time.Second, "the runtime class to be required", func(context.Context) error {
		return wait.If(try(unallowed) != nil, "no refusal")
	})
	refused("no runtime class", unallowed, "runtimeClassName"+notAllowed)
	refused("the classes", unallowed, "(valid for runtimeClassName: gvisor, kata)")
	refused("another runtime class", strings.Replace(unallowed, "serviceAccountName: default", "runtimeClassName: runc", 1),
		"runtimeClassName"+notAllowed)
	passes("a runtime class", fmt.Sprintf(templateOf, sandboxed(tame), "other"))
	passes("the named template", fmt.Sprintf(templateOf, path, "pinned"))
	refused("another field of it", fmt.Sprintf(templateOf, strings.Replace(path, "hostNetwork: false", "hostNetwork: true", 1), "pinned"),
		".spec: hostNetwork"+notAllowed)
	refused("another template", fmt.Sprintf(templateOf, sandboxed(path), "other"), ".spec: hostPath"+notAllowed)
	passes("the named namespace", fmt.Sprintf(poolOf, sandboxed(path), "trusted"))
	passes("an Env there", fmt.Sprintf(envOf, sandboxed(path), "trusted"))
	refused("another namespace", fmt.Sprintf(poolOf, sandboxed(path), "default"), ".spec: hostPath"+notAllowed)
	// A pool that names the template gets the template's Pods, not its exceptions for its own.
	refused("a pool by name", strings.Replace(fmt.Sprintf(poolOf, sandboxed(path), "default"), "replicas: 0",
		"replicas: 0, templateName: pinned", 1), ".spec: hostPath"+notAllowed)
	env := `{apiVersion: agents.navix.sh/v1alpha1, kind: SandboxEnv, metadata: {name: told, namespace: default}, ` +
		`spec: {templateRef: {name: %[1]s},
		clusters: [{clusterID: west, members: [{name: a}]}]%[2]s}}`
	const stay = "the Pods have fields that are allowed for their own image alone"
	passes("an Env of it", fmt.Sprintf(env, "pinned", ""))
	refused("an Env of it with another image", fmt.Sprintf(env, "pinned", ", overrides: {image: evil}"), stay)
	refused("an Env of it for any image", strings.Replace(fmt.Sprintf(env, "pinned", ""), "namespace: default",
		`namespace: default, annotations: {agentbox.navix.sh/allowed-images: "*"}`, 1), stay)
	refused("a member of it for any image", strings.Replace(fmt.Sprintf(env, "pinned", ""), "{name: a}",
		`{name: a, config: {annotations: {agentbox.navix.sh/allowed-images: "*"}}}`, 1), stay)
	passes("another image where it is allowed", fmt.Sprintf(env, "free", ", overrides: {image: mine}"))
	refused("a pool of it with another image",
		`{apiVersion: agents.navix.sh/v1alpha1, kind: SandboxPool, metadata: {name: told, namespace: default}, spec: {replicas: 0, `+
			`templateName: pinned, idleImage: evil}}`, stay)
	passes("a pool of it",
		`{apiVersion: agents.navix.sh/v1alpha1, kind: SandboxPool, metadata: {name: told, namespace: default}, spec: {replicas: 0, `+
			`templateName: pinned}}`)
}
