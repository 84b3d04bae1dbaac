// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"encoding/json"
	"fmt"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/patch"
	"navix.sh/atoll/worker/internal/podtemplate"
	"navix.sh/atoll/worker/internal/pool"
)

var _ pool.Gater = (*Reconciler)(nil)

// Of implements pool.Gater. It returns the condition about the pool's template, and whether Pods must wait for it.
func (r *Reconciler) Of(ctx context.Context, p *v1alpha1.SandboxPool) (pool.Gate, error) {
	if v1alpha1.HasEnvOwner(p) || p.DeletionTimestamp != nil {
		return pool.Gate{}, nil
	}
	var tmpl *podtemplate.Template
	if name := p.Spec.TemplateName; name != "" {
		var err error
		if tmpl, err = r.templates.Seen(ctx, p.Namespace, name); err != nil {
			return pool.Gate{}, err
		}
	}
	var spec map[string]any
	if !frozen(p) && tmpl != nil && !tmpl.Hidden {
		// The cache has the Go type. The fields that it drops do not affect whether Pods can be created.
		content, err := json.Marshal(&p.Spec)
		if err == nil {
			err = json.Unmarshal(content, &spec)
		}
		if err != nil {
			return pool.Gate{}, fmt.Errorf("encoding the pool's spec: %w", err)
		}
	}
	d := decide(p, spec, tmpl)
	gate := pool.Gate{Awaits: d.verb == verbCopy || d.verb == verbWait}
	if d.verb == verbCopy {
		return gate, nil // the copy will be made soon, and causes an event
	}
	if d.condition != nil {
		gate.Conditions = []patch.Condition{*d.condition}
	}
	return gate, nil
}
