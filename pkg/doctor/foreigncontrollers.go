// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/pkg/foreigncontroller"
	"navix.sh/atoll/pkg/validate"
	"navix.sh/atoll/pkg/verify"
)

// contestedFor is how long the worker leaves an object alone after another controller's write.
const contestedFor = 2 * time.Minute

// foreignControllers reports other controllers that appear to write the same objects. It does not see the leases to which a worker yields.
func foreignControllers(s *Snapshot) []Diagnosis {
	var out []Diagnosis
	for i := range s.Clusters {
		c := &s.Clusters[i]
		if site := s.Sites[c.ID]; site != nil {
			for _, l := range site.ForeignLeases {
				if s.age(c, l.Renewed) <= l.Duration+verify.LeaseSlack {
					out = append(out, Diagnosis{Reason: ControlledByAnother, Severity: Warning, Cluster: c.ID,
						Object: "lease " + l.Namespace + "/" + l.Name,
						What: fmt.Sprintf("%s holds a lease that looks like that of another controller of Envs and pools (%s)", validate.Clip(l.Holder),
							l.Reason),
						Do: "if it is one, stop one of the two, or have the worker give way: --rival-leases " + l.Namespace + "/" + l.Name +
							"; docs/moving-over.md tells how to go over\nsee who it is: " +
							s.kubectl(c.ID) + " -n " + l.Namespace + " get lease " + l.Name + " -o yaml"})
				}
			}
		}
		out = append(out, s.contested(c)...)
	}
	return out
}

func (s *Snapshot) contested(c *verify.Cluster) []Diagnosis {
	var out []Diagnosis
	check := func(kind string, object metav1.Object) {
		w, foreign := foreigncontroller.StatusWrite(object)
		if !foreign || s.age(c, w.At) > contestedFor {
			return
		}
		out = append(out, Diagnosis{Reason: ControlledByAnother, Severity: Warning, Cluster: c.ID,
			Object: kind + " " + object.GetNamespace() + "/" + object.GetName(), Since: s.age(c, w.At),
			What: fmt.Sprintf("%s has written its status, so the worker leaves it alone until that has stopped for %s", w.Manager, contestedFor),
			Do:   "stop " + w.Manager + ", or remove the object from what it keeps; docs/moving-over.md tells how to go over"})
	}
	for i := range c.Envs {
		check("env", &c.Envs[i])
	}
	for i := range c.Pools {
		check("pool", &c.Pools[i])
	}
	return out
}

// foreignLeases reads the leases of other controllers, except for those of nodes.
func (i inspector) foreignLeases(ctx context.Context) error {
	list := &coordinationv1.LeaseList{}
	err := i.client.List(ctx, list, client.MatchingFieldsSelector{
		Selector: fields.OneTermNotEqualSelector("metadata.namespace", corev1.NamespaceNodeLease),
	})
	if err != nil {
		return err
	}
	i.site.ForeignLeases = foreigncontroller.Suspects(list.Items, i.Namespace)
	return nil
}
