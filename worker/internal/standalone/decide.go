// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/runtime"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/patch"
	"navix.sh/atoll/worker/internal/podtemplate"
)

// verb is an action on a pool.
type verb string

const (
	verbNone verb = "None" // the pool is an Env's, or names no template
	verbKeep verb = "Keep" // the pool is complete
	verbCopy verb = "Copy" // copy the template's fields
	verbWait verb = "Wait" // the fields cannot be copied yet
)

// decision is what to do about a pool, and what to report.
type decision struct {
	verb verb
	// add has the fields that verbCopy copies.
	add map[string]any
	// condition is the pool's TemplateConsistent; nil for verbNone.
	condition *patch.Condition
}

// decide returns what to do about a pool, given its spec as a document; tmpl is nil if the template does not exist.
func decide(pool *v1alpha1.SandboxPool, spec map[string]any, tmpl *podtemplate.Template) decision {
	if v1alpha1.HasEnvOwner(pool) || pool.DeletionTimestamp != nil {
		return decision{verb: verbNone}
	}
	name := pool.Spec.TemplateName
	if name == "" {
		return withoutTemplate(pool)
	}
	if frozen(pool) {
		return decision{verb: verbKeep, condition: consistent(pool, tmpl)}
	}
	if tmpl != nil && tmpl.Hidden {
		return wait(v1alpha1.ReasonTemplateNotVisible, podtemplate.NotVisible(name, pool.Namespace))
	}
	if tmpl == nil {
		return wait(v1alpha1.ReasonTemplateNotFound, fmt.Sprintf("there is no SandboxTemplate %q; create it", name))
	}
	add, err := missing(spec, tmpl)
	if err != nil {
		return wait(v1alpha1.ReasonTemplateInvalid, err.Error())
	}
	return decision{verb: verbCopy, add: add, condition: matches(tmpl)}
}

func wait(reason v1alpha1.ConditionReason, message string) decision {
	c := patch.False(v1alpha1.SandboxPoolConditionTemplateConsistent, reason, clip.Text(message, podtemplate.LongestMessage))
	return decision{verb: verbWait, condition: &c}
}

// withoutTemplate decides about a pool that names no existing template. The pool either defines its Pods itself, or has none.
func withoutTemplate(pool *v1alpha1.SandboxPool) decision {
	if len(pool.Spec.Template.Spec.Containers) > 0 {
		return decision{verb: verbNone}
	}
	return wait(v1alpha1.ReasonTemplateInvalid,
		"spec.template.spec.containers is empty, and so is spec.templateName; valid: either of them given")
}

// frozen reports whether the pool got its template's fields and still has them.
func frozen(pool *v1alpha1.SandboxPool) bool {
	return pool.Annotations[v1alpha1.SandboxPoolTemplateNameAnnotationKey] != "" && len(pool.Spec.Template.Spec.Containers) > 0
}

func matches(tmpl *podtemplate.Template) *patch.Condition {
	c := patch.True(v1alpha1.SandboxPoolConditionTemplateConsistent, v1alpha1.ReasonTemplateMatches,
		fmt.Sprintf("template %s, version %q, revision %s", tmpl.Name, tmpl.Version, tmpl.Revision))
	return &c
}

// consistent returns the condition of a frozen pool, given the current template.
func consistent(pool *v1alpha1.SandboxPool, tmpl *podtemplate.Template) *patch.Condition {
	const again = "; the pool goes on as it is. To have it made anew from the template: remove spec.template, spec.idleImage and spec.runtimes"
	not := func(reason v1alpha1.ConditionReason, format string, args ...any) *patch.Condition {
		c := patch.False(v1alpha1.SandboxPoolConditionTemplateConsistent, reason,
			clip.Text(fmt.Sprintf(format, args...), podtemplate.LongestMessage))
		return &c
	}
	from := pool.Annotations[v1alpha1.SandboxPoolTemplateNameAnnotationKey]
	revision := pool.Annotations[v1alpha1.TemplateRevisionAnnotationKey]
	version := pool.Annotations[v1alpha1.SandboxPoolTemplateVersionAnnotationKey]
	switch {
	case from != pool.Spec.TemplateName:
		return not(v1alpha1.ReasonTemplateMismatch, "made from template %s, spec.templateName is now %s%s", from, pool.Spec.TemplateName, again)
	case tmpl != nil && tmpl.Hidden:
		return not(v1alpha1.ReasonTemplateNotVisible, "%s; the pool goes on with what it was made from",
			podtemplate.NotVisible(from, pool.Namespace))
	case tmpl == nil:
		return not(v1alpha1.ReasonTemplateNotFound, "there is no SandboxTemplate %q any more; the pool goes on with what it was made from", from)
	case revision != "" && revision != tmpl.Revision:
		return not(v1alpha1.ReasonTemplateOutdated, "made from revision %s, the template is at %s%s", revision, tmpl.Revision, again)
	case version != tmpl.Version:
		return not(v1alpha1.ReasonTemplateOutdated, "made from version %q, the template is at %q%s", version, tmpl.Version, again)
	}
	return matches(tmpl)
}

// missing returns the template's fields that a pool lacks, if Pods can be created from both together.
func missing(spec map[string]any, tmpl *podtemplate.Template) (map[string]any, error) {
	add, together := map[string]any{}, map[string]any{}
	maps.Copy(together, spec)
	for _, field := range podtemplate.Fields() {
		own, err := given(field, spec[field])
		if err != nil {
			return nil, err
		}
		value, has := tmpl.Spec[field]
		switch {
		case own:
		case has:
			add[field], together[field] = runtime.DeepCopyJSONValue(value), value
		default:
			delete(together, field)
		}
	}
	podtemplate.WithoutToken(add)
	if faults := podtemplate.Faults(together); len(faults) > 0 {
		return nil, fmt.Errorf("with SandboxTemplate %s: %s", tmpl.Name, podtemplate.Sentence(faults))
	}
	return add, podtemplate.Readable(together)
}

// given reports whether the pool sets a field. Go clients send a template that was not set as
// {"metadata":{},"spec":{"containers":null}}.
func given(field string, value any) (bool, error) {
	if empty(value) {
		return false, nil
	}
	if field != "template" {
		return true, nil
	}
	doc, _ := value.(map[string]any)
	pod, _ := doc["spec"].(map[string]any)
	if containers, _ := pod["containers"].([]any); len(containers) == 0 {
		content, _ := json.Marshal(value)
		return false, errors.New("spec.template has no containers, so it cannot stand for the template's, and would be lost: " +
			string(content) + "; valid: a whole Pod template, or none")
	}
	return true, nil
}

// empty reports whether a document has no content.
func empty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		for _, inner := range v {
			if !empty(inner) {
				return false
			}
		}
		return true
	}
	return false
}
