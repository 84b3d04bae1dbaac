// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"navix.sh/atoll/e2e/must"
)

// warnings collects what the API server warns of.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

func (w *warnings) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := strings.Join(w.texts, "\n")
	w.texts = nil
	return all
}

// plausible: an image that is no reference is refused; a scaling group that does not exist, and the end of a template that is in use,
// are warned of.
func plausible(t *testing.T) {
	warned := &warnings{}
	as := administrator(t, warned)
	try := dryRun(t, as)
	const (
		template = `{apiVersion: agents.navix.sh/v1alpha1, kind: SandboxTemplate, metadata: {name: told}, spec: {idleImage: "IDLE", ` +
			`template: {spec: {containers: [{name: main, image: "MAIN"}]}}}}`
		env = `{apiVersion: agents.navix.sh/v1alpha1, kind: SandboxEnv, metadata: {name: told, namespace: default}, ` +
			`spec: {templateRef: {name: told},
			overrides: {image: "IMAGE"}, autoscaling: {groups: [{name: a}, {name: b}]}, clusters: [{clusterID: west, members: [{name: one, ` +
			`config: {scalingGroup: MEMBER}}, {name: two, config: {scalingGroup: a}}, {name: three, config: {scalingGroup: b}}, {name: four}]}]}}`
	)
	for _, tc := range []struct{ manifest, refused, warned string }{
		{strings.NewReplacer("IDLE", "app", "MAIN", "registry.example:5000/Team/App").Replace(template),
			`"registry.example:5000/Team/App" is no image reference`, ""},
		{strings.NewReplacer("IDLE", "app", "MAIN", "BAD IMG").Replace(template),
			`spec.template.spec.containers[].image: "BAD IMG" is no image reference`, ""},
		{strings.NewReplacer("IDLE", "BAD IMG", "MAIN", "app").Replace(template), `spec.idleImage: "BAD IMG" is no image reference`, ""},
		{strings.NewReplacer("IDLE", "ghcr.io/a/b_c.d:v1", "MAIN", "localhost:5000/app@sha256:"+strings.Repeat("0f", 32)).Replace(template), "",
			""},
		{strings.NewReplacer("IMAGE", "BAD IMG", "MEMBER", "b").Replace(env), `spec.overrides.image: "BAD IMG" is no image reference`, ""},
		{strings.NewReplacer("IMAGE", "app:v1", "MEMBER", "b").Replace(env), "", ""},
		{strings.NewReplacer("IMAGE", "app:v1", "MEMBER", "c").Replace(env), "",
			"config.scalingGroup: c is no group of spec.autoscaling.groups (a, b)"},
	} {
		err := try(tc.manifest)
		told := warned.take()
		if (err != nil) != (tc.refused != "") || err != nil && !strings.Contains(err.Error(), tc.refused) {
			t.Errorf("%s\n%v, want a refusal because of %q", tc.manifest, err, tc.refused)
		}
		if !strings.Contains(told, tc.warned) || tc.warned == "" && told != "" {
			t.Errorf("%s\nwarned of %q, want %q", tc.manifest, told, tc.warned)
		}
	}

	remove := func(conditions string) string {
		object := &unstructured.Unstructured{}
		manifest := strings.NewReplacer("IDLE", "app", "MAIN", "app", "name: told", "name: used").Replace(template)
		must.Succeed(t, yaml.Unmarshal([]byte(manifest), &object.Object))
		must.Succeed(t, as.Create(t.Context(), object))
		status, err := yaml.YAMLToJSON([]byte("status: {conditions: [" + conditions + "]}"))
		must.Succeed(t, err)
		must.Succeed(t, as.Status().Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", status)))
		warned.take()
		must.Succeed(t, as.Delete(t.Context(), object))
		return warned.take()
	}
	is := func(condition, status, reason, message string) string {
		return fmt.Sprintf("{type: %s, status: %q, reason: %s, lastTransitionTime: %q, message: %q}, ", condition, status, reason,
			"2026-03-01T12:00:00Z", message)
	}
	current := is("Degraded", "False", "AllCurrent", "all pools that name it have this revision")
	faults := func(fault string) string { return is("Available", "False", "TemplateInvalid", fault) }
	for _, tc := range []struct{ name, conditions, warned string }{
		{"is not used", is("Available", "True", "Validated", "version v1, revision 1; nothing uses it") + current, ""},
		{"is used", is("Available", "True", "Validated", "version v1, revision 1; pools: 2, of this revision: 2; Envs: default/py") + current,
			"Envs: default/py"},
		{"has faults and is not used", faults(`"pools: 1" is no name`) +
			is("Degraded", "True", "TemplateInvalid", "no Pods can be made from it; nothing uses it"), ""},
		{"has faults and is used", faults("spec.template.spec.containers: there is none") + is("Degraded", "True", "TemplateInvalid",
			"no Pods can be made from it; pools: 1, of this revision: 0; Envs: default/py, which go on with what they were made from"),
			"pools: 1, of this revision: 0; Envs: default/py"},
	} {
		told := remove(tc.conditions)
		if tc.warned == "" && told != "" || tc.warned != "" && (!strings.Contains(told, "the template is in use") ||
			!strings.Contains(told, tc.warned)) {
			t.Errorf("the end of a template that %s: warned of %q, want %q", tc.name, told, tc.warned)
		}
	}
}
