// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/worker/internal/podtemplate"
)

const python = `
idleImage: pause
runtimes: [{name: e2b, port: 49983}]
template: {spec: {containers: [{name: main, image: python, newerThanThisBuild: yes}]}}`

func read(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	must.Succeed(t, yaml.Unmarshal([]byte(text), &out))
	return out
}

func poolOf(t *testing.T, spec map[string]any, annotations map[string]string) *v1alpha1.SandboxPool {
	t.Helper()
	content, err := json.Marshal(spec)
	must.Succeed(t, err)
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: annotations}}
	must.Succeed(t, json.Unmarshal(content, &pool.Spec))
	return pool
}

func TestDecide(t *testing.T) {
	from := func(name, version, revision string) map[string]string {
		return map[string]string{
			v1alpha1.SandboxPoolTemplateNameAnnotationKey: name, v1alpha1.SandboxPoolTemplateVersionAnnotationKey: version,
			v1alpha1.TemplateRevisionAnnotationKey: revision,
		}
	}
	const inline = `template: {spec: {containers: [{name: own, image: own}]}}`
	for _, tt := range []struct {
		name, spec, template string
		annotations          map[string]string
		want                 string // verb, fields to add, condition
	}{
		{"nothing given", `templateName: python`, python, nil, "Copy idleImage,runtimes,template True/TemplateMatches"},
		{"as a Go client writes nothing",
			`{templateName: python, template: {metadata: {creationTimestamp: null}, spec: {containers: null}}, runtimes: null}`, python, nil,
			"Copy idleImage,runtimes,template True/TemplateMatches"},
		{"an image of its own", `{templateName: python, idleImage: mine}`, python, nil, "Copy runtimes,template True/TemplateMatches"},
		{"runtimes of its own", `{templateName: python, runtimes: [{name: mine}]}`, python, nil, "Copy idleImage,template True/TemplateMatches"},
		{"a Pod template of its own", `{templateName: python, ` + inline + `}`, python, nil, "Copy idleImage,runtimes True/TemplateMatches"},
		{"everything of its own", `{templateName: python, idleImage: a, runtimes: [{name: b}], ` + inline + `}`, python, nil,
			"Copy  True/TemplateMatches"},
		{"its own Pod template makes up for the template's", `{templateName: python, ` + inline + `}`, `template: {spec: {containers: 5}}`, nil,
			"Copy  True/TemplateMatches"},
		{"half a Pod template", `{templateName: python, template: {metadata: {labels: {a: b}}}}`, python, nil,
			"Wait  False/TemplateInvalid: spec.template has no containers, so it cannot stand for the template's"},
		{"no template", `templateName: python`, "", nil, `Wait  False/TemplateNotFound: there is no SandboxTemplate "python"; create it`},
		{"no template, and a Pod template of its own", `{templateName: python, ` + inline + `}`, "", nil, `Wait  False/TemplateNotFound`},
		{"an invalid template", `templateName: python`, `template: {spec: {containers: [{name: main}]}}`, nil,
			"Wait  False/TemplateInvalid: with SandboxTemplate python: spec.template.spec.containers[0].image is empty"},
		{"no template named, and a Pod template", inline, "", nil, "None "},
		{"nothing named and nothing given", `replicas: 1`, "", nil,
			"Wait  False/TemplateInvalid: spec.template.spec.containers is empty, and so is spec.templateName"},
		{"given", `{templateName: python, ` + inline + `}`, python, from("python", "v1", "r1"), "Keep  True/TemplateMatches"},
		{"given, by a system that records no revision", `{templateName: python, ` + inline + `}`, python, from("python", "v1", ""),
			"Keep  True/TemplateMatches"},
		{"given, and the template is gone", `{templateName: python, ` + inline + `}`, "", from("python", "v1", "r1"),
			"Keep  False/TemplateNotFound"},
		{"given from an older revision", `{templateName: python, ` + inline + `}`, python, from("python", "v1", "r0"),
			"Keep  False/TemplateOutdated: made from revision r0, the template is at r1"},
		{"given from an older version", `{templateName: python, ` + inline + `}`, python, from("python", "v0", "r1"),
			"Keep  False/TemplateOutdated: made from version \"v0\""},
		{"renamed since", `{templateName: python, ` + inline + `}`, python, from("node", "v1", "r1"),
			"Keep  False/TemplateMismatch: made from template node"},
		{"given and lost", `templateName: python`, python, from("python", "v1", "r0"), "Copy idleImage,runtimes,template True/TemplateMatches"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := read(t, tt.spec)
			var tmpl *podtemplate.Template
			if tt.template != "" {
				tmpl = &podtemplate.Template{Name: "python", Version: "v1", Revision: "r1", Spec: read(t, tt.template)}
			}
			d := decide(poolOf(t, spec, tt.annotations), spec, tmpl)
			var fields []string
			for _, field := range []string{"idleImage", "runtimes", "template"} {
				if _, ok := d.add[field]; ok {
					fields = append(fields, field)
				}
			}
			got := fmt.Sprintf("%s %s", d.verb, strings.Join(fields, ","))
			if c := d.condition; c != nil {
				got += fmt.Sprintf(" %s/%s: %s", c.Status, c.Reason, c.Message)
			}
			if !strings.HasPrefix(got, tt.want) {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestNewerFieldsSurvive: what is copied is the document, not the fields that this build knows.
func TestNewerFieldsSurvive(t *testing.T) {
	spec := read(t, `templateName: python`)
	d := decide(poolOf(t, spec, nil), spec, &podtemplate.Template{Name: "python", Spec: read(t, python)})
	content, err := json.Marshal(d.add)
	if err != nil || !strings.Contains(string(content), "newerThanThisBuild") {
		t.Errorf("copied %s (%v)", content, err)
	}
}

// TestI14PodsGetNoToken: unless the template says otherwise, which stays as it is.
func TestI14PodsGetNoToken(t *testing.T) {
	for template, want := range map[string]string{
		python: `"automountServiceAccountToken":false`,
		strings.Replace(python, "{spec: {", "{spec: {automountServiceAccountToken: true, ", 1): `"automountServiceAccountToken":true`,
	} {
		spec, of := read(t, `templateName: python`), read(t, template)
		before := fmt.Sprint(of)
		d := decide(poolOf(t, spec, nil), spec, &podtemplate.Template{Name: "python", Spec: of})
		if content, err := json.Marshal(d.add); err != nil || !strings.Contains(string(content), want) {
			t.Errorf("copied %s (%v), want %s", content, err, want)
		}
		if fmt.Sprint(of) != before {
			t.Errorf("the template was changed to %v", of)
		}
	}
}

// TestEnvsPoolsAreLeftAlone: any reference to an Env, controlling or not, makes a pool that Env's.
func TestEnvsPoolsAreLeftAlone(t *testing.T) {
	spec := read(t, `templateName: python`)
	pool := poolOf(t, spec, nil)
	pool.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "SandboxEnv", Name: "e", UID: "u"}}
	if d := decide(pool, spec, &podtemplate.Template{Name: "python", Spec: read(t, python)}); d.verb != verbNone {
		t.Errorf("got %s, want None", d.verb)
	}
	pool.OwnerReferences = nil
	now := metav1.Now()
	pool.DeletionTimestamp = &now
	if d := decide(pool, spec, &podtemplate.Template{Name: "python", Spec: read(t, python)}); d.verb != verbNone {
		t.Errorf("being deleted: got %s, want None", d.verb)
	}
}
