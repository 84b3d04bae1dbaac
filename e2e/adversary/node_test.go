// SPDX-License-Identifier: Apache-2.0

package adversary_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
)

// nodeRows attack what lies beside a sandbox: its node, and other containers of its Pod. The operator has allowed hostNetwork for the
// template of the Env node.
func nodeRows() []row {
	const never = "(2|101).*"
	return []row{
		{name: "node-ports", role: tenant, told: []string{"403 FORBIDDEN: the Pod is on its node's network.*"}, never: []string{never, "reached"},
			attack: nodePorts},
		{name: "other-containers", role: tenant, attack: otherContainers, never: []string{never, "claimed"}, told: []string{
			`403 FORBIDDEN: container: "side" is not open to callers, want main;.*`,
			`FORBIDDEN: postStartHooks\[0\].exec.container: "side" is not open to callers, want main;.*`,
		}},
	}
}

// upgrading are the headers that begin a WebSocket.
func upgrading(protocol string) []string {
	return []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-Websocket-Version", "13",
		"Sec-Websocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-Websocket-Protocol", protocol}
}

// why requests a path below a sandbox, and tells the response with the reason in full.
func (a *attacker) why(ctx context.Context, by *http.Client, sandbox, path string, header ...string) {
	response, err := a.request(ctx, by, "GET", a.url("/v1/sandboxes/"+sandbox+"/"+path), a.Tokens["mallory"], "", header...)
	if err != nil {
		if ctx.Err() == nil {
			a.tell("closed")
		}
		return
	}
	defer response.Body.Close()
	if response.StatusCode < 400 {
		a.tell(response.Status)
		return
	}
	p := problem.Read(response.StatusCode, response.Body)
	a.tell(fmt.Sprintf("%d %s: %s", response.StatusCode, p.Reason, p.Message))
}

// nodePorts connects to the node's loopback, which on planes is this machine's: to a server of its own, and to a kubelet's port.
func nodePorts(ctx context.Context, a *attacker) error {
	port, err := a.listen(ctx, func(net.Conn) {})
	if err != nil {
		return err
	}
	by := a.client()
	swarm(ctx, 8, func(int) {
		for _, number := range []string{port, "10250"} {
			a.why(ctx, by, a.Node, "ports/"+number+"/")
			a.why(ctx, by, a.Node, "ports/"+number, upgrading(reach.TCPProtocol)...)
		}
	})
	return nil
}

// otherContainers reaches for a sidecar: by exec, logs, and a hook.
func otherContainers(ctx context.Context, a *attacker) error {
	by := a.client()
	c, err := a.as(ctx, "mallory")
	if err != nil {
		return err
	}
	hook, err := structpb.NewStruct(map[string]any{"exec": map[string]any{"command": []any{"true"}, "container": "side"}})
	if err != nil {
		return err
	}
	query := url.Values{"command": {"true"}, "container": {"side"}, "stdout": {"true"}}.Encode()
	swarm(ctx, 8, func(int) {
		a.why(ctx, by, a.Node, "exec?"+query, upgrading(reach.ExecProtocol)...)
		a.why(ctx, by, a.Node, "logs?container=side")
		a.attempts.Add(1)
		switch err := c.create(ctx, &create{Env: nodeEnv, NoQueue: true, PostStartHooks: []*structpb.Struct{hook}}); {
		case ctx.Err() != nil:
		case err == nil:
			a.tell("claimed")
		default:
			p := problem.FromError(err)
			a.tell(fmt.Sprintf("%s: %s", p.Reason, p.Message))
		}
	})
	return nil
}

// templateRows attack the node, and other teams, by what an editor writes.
func templateRows() []row {
	var fields []string
	for _, kind := range []string{"spec.template.spec", "spec.clusters[].members[].spec.template.spec"} {
		for field := range nodeFields {
			fields = append(fields, regexp.QuoteMeta("refused: "+kind+": "+field))
		}
	}
	return []row{
		{name: "node-fields", role: editor, told: append(fields, "refused: sandboxtemplates"), never: []string{"OK.*"}, attack: writeNodeFields},
		{name: "hidden-templates", role: editor, told: []string{"written", "refused: namespaces"}, never: []string{"OK.*"},
			attack: hiddenTemplates,
			check:  stayedHidden},
	}
}

// nodeFields are Pod specs that reach beyond the Pod, by the field that does.
var nodeFields = map[string]map[string]any{
	"privileged":   {"containers": []any{withContext(map[string]any{"privileged": true})}},
	"capabilities": {"containers": []any{withContext(map[string]any{"capabilities": map[string]any{"add": []any{"SYS_ADMIN"}}})}},
	"hostPath": {"containers": []any{withContext(nil)},
		"volumes": []any{map[string]any{"name": "root", "hostPath": map[string]any{"path": "/"}}}},
	"serviceAccountName": {"containers": []any{withContext(nil)}, "serviceAccountName": "atoll-worker"},
	"hostNetwork":        {"containers": []any{withContext(nil)}, "hostNetwork": true},
	"hostPID":            {"containers": []any{withContext(nil)}, "hostPID": true},
}

func withContext(security map[string]any) map[string]any {
	c := map[string]any{"name": "main", "image": "registry.example/python:3.13"}
	if security != nil {
		c["securityContext"] = security
	}
	return c
}

var (
	deniedField = regexp.MustCompile(`denied request: (\S+: \S+): not allowed in Pods of sandboxes`)
	deniedKind  = regexp.MustCompile(`cannot \w+ resource "(\w+)"`)
)

// tellDenied tells what was refused, and by that by whom: the policy on fields, or the editor's Role.
func (a *attacker) tellDenied(err error) {
	if err == nil {
		a.tell("OK")
		return
	}
	for _, pattern := range []*regexp.Regexp{deniedField, deniedKind} {
		if match := pattern.FindStringSubmatch(err.Error()); match != nil {
			a.tell("refused: " + match[1])
			return
		}
	}
	a.tell("error: " + err.Error())
}

// writeNodeFields writes them in pools, Envs and templates.
func writeNodeFields(ctx context.Context, a *attacker) error {
	kube, err := a.kube()
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		for field, spec := range nodeFields {
			name := unused(strings.ToLower(field))
			pool := map[string]any{"replicas": int64(1), "idleImage": "registry.example/python:3.13", "template": map[string]any{"spec": spec}}
			template := custom("SandboxTemplate", name, map[string]any{"version": "v1.0.0", "template": map[string]any{"spec": spec}})
			template.SetNamespace("")
			member := memberObject(name+"-east", 1)
			member["spec"].(map[string]any)["template"] = map[string]any{"spec": spec}
			for _, o := range []client.Object{custom("SandboxPool", name, pool), template, envObject(name, []any{member}, nil)} {
				a.attempts.Add(1)
				a.sent.Add(1)
				if err := kube.Create(ctx, o); ctx.Err() == nil {
					a.tellDenied(err)
				}
			}
		}
	}
	return nil
}

// custom is an object of Atoll's in the adversary's namespace.
func custom(kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "agents.navix.sh/v1alpha1", "kind": kind, "metadata": map[string]any{"namespace": editorNamespace, "name": name},
		"spec": spec,
	}}
}

// hiddenTemplates writes Envs of another team's template under that team's name, and takes its Namespace for that team's.
func hiddenTemplates(ctx context.Context, a *attacker) error {
	kube, err := a.kube()
	if err != nil {
		return err
	}
	labels := map[string]string{"scheduling.navix.sh/team": teams[0]}
	for n := 0; ctx.Err() == nil && n < a.size(20, 100); n++ {
		a.attempts.Add(1)
		a.sent.Add(1)
		namespace := &corev1.Namespace{}
		namespace.Name = editorNamespace
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"scheduling.navix.sh/team":"`+teams[0]+`"}}}`))
		if err := kube.Patch(ctx, namespace, patch); ctx.Err() == nil {
			a.tellDenied(err)
		}
		name := unused("hidden")
		env := envObject(name, []any{memberObject(name+"-east", 1)}, map[string]any{"templateRef": map[string]any{"name": "hidden"}})
		env.SetLabels(labels)
		env.SetAnnotations(labels)
		if err := kube.Create(ctx, env); err != nil {
			if ctx.Err() == nil {
				a.tellDenied(err)
			}
			continue
		}
		a.tell("written")
	}
	return nil
}

// stayedHidden checks that every Env of a hidden template says so, and has no pool; and deletes them.
func stayedHidden(ctx context.Context, w *world, _ *ground) error {
	east := w.Cluster("east")
	var envs []string
	err := wait.Until(ctx, patience, "the Envs to be looked at", func(ctx context.Context) error {
		out, err := east.Kubectl(ctx, "get", "sandboxenvs", "-n", editorNamespace, "-o",
			`jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="TemplateConsistent")].reason}{"\n"}{end}`)
		if err != nil {
			return err
		}
		envs = nil
		for line := range strings.Lines(out) {
			name, reason, _ := strings.Cut(strings.TrimSpace(line), " ")
			if !strings.HasPrefix(name, "hidden-") {
				continue
			}
			if envs = append(envs, name); reason != "TemplateNotVisible" {
				return fmt.Errorf("Env %s has the reason %q, want TemplateNotVisible", name, reason)
			}
		}
		return wait.If(len(envs) > 0, "no Env")
	})
	if err != nil {
		return err
	}
	pools, err := east.Kubectl(ctx, "get", "sandboxpools", "-n", editorNamespace, "-o", "name")
	if strings.Contains(pools, "hidden-") {
		err = fmt.Errorf("I14: pools were made from another team's template: %s", pools)
	}
	_, deleteErr := east.Kubectl(ctx, append([]string{"delete", "sandboxenvs", "-n", editorNamespace}, envs...)...)
	return errors.Join(err, deleteErr)
}
