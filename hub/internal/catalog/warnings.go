// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/manifest"
)

// Bounds of the number of warnings, and of the names in one warning.
const (
	maxWarnings      = 10
	maxWarningsNames = 10
)

// warnings lists the parts of a manifest that are allowed but probably a mistake: a template that the catalogue lacks, or an unknown
// cluster.
func (s *Service) warnings(ctx context.Context, o manifest.Object) (out []string) {
	if o == nil || o.Kind() != manifest.EnvKind {
		return nil
	}
	if name := o.Template(); name != "" {
		if t := s.state.Load().records[keyOf(templateRef(name))]; t == nil || t.removed() || !visible(ctx, t.object) {
			out = append(out, fmt.Sprintf("spec.templateRef.name: the catalogue has no template %q; a cluster starts its Pods once it has one",
				clip.Text(name, maxMessage)))
		}
	}
	known, sees := s.opts.Fleet.ClusterIDs(), seenParts(ctx, o.Ref())
	for _, id := range o.Clusters() {
		if len(out) == maxWarnings {
			break
		}
		if slices.Contains(known, id) || !sees(id) {
			continue
		}
		out = append(out, fmt.Sprintf("spec.clusters: no cluster %q has joined; %s", clip.Text(id, maxMessage), seenOf(known, sees)))
	}
	return out
}

// seenOf names the clusters that the caller sees.
func seenOf(all []string, sees func(cluster string) bool) string {
	seen := slices.DeleteFunc(slices.Clone(all), func(id string) bool { return !sees(id) })
	slices.Sort(seen)
	switch n := len(seen); {
	case n == 0:
		return "the hub has none yet"
	case n > maxWarningsNames:
		return fmt.Sprintf("the hub has %s and %d more", strings.Join(seen[:maxWarningsNames], ", "), n-maxWarningsNames)
	}
	return "the hub has " + strings.Join(seen, ", ")
}
