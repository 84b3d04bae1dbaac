// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
)

// standalone reports pools without an Env that wait for their template, or that continue without it.
func standalone(s *Snapshot) []Diagnosis {
	var out []Diagnosis
	for i := range s.Clusters {
		c := &s.Clusters[i]
		for j := range c.Pools {
			p := &c.Pools[j]
			found := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.SandboxPoolConditionTemplateConsistent)
			if found == nil || found.Status == metav1.ConditionTrue {
				continue
			}
			d := Diagnosis{Reason: TemplateDiffers, Severity: Info, Cluster: c.ID, Object: "pool " + p.Namespace + "/" + p.Name,
				What:  fmt.Sprintf("%s=%s, %s: %s", found.Type, found.Status, found.Reason, found.Message),
				Since: s.age(c, found.LastTransitionTime.Time),
				Do:    fmt.Sprintf("%s -n %s describe sandboxpool %s", s.kubectl(c.ID), p.Namespace, p.Name)}
			if len(p.Spec.Template.Spec.Containers) == 0 {
				d.Severity = Warning
			}
			out = append(out, d)
		}
	}
	return out
}
