// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/validate"
)

const (
	// namedEnvs bounds the number of Envs in an error.
	namedEnvs = 20
	// awaitedAgain is the retry delay for a hub that has just started.
	awaitedAgain = 2 * time.Second
)

// Sight says which Envs and clusters a caller may see.
type Sight interface {
	SeesEnv(namespace, name string) bool
	SeesCluster(id string) bool
}

// UnknownEnv returns the error for an Env that no cluster has. It names the Envs of the namespace that the caller may see. A hub that has
// just started may have no report of the Env yet; the error then names the clusters that it waits for, of those that the caller may see.
func (f *Fleet) UnknownEnv(namespace, name string, caller Sight) error {
	if awaited := f.Awaited(); len(awaited) > 0 {
		awaited = slices.DeleteFunc(awaited, func(id string) bool { return !caller.SeesCluster(id) })
		return problem.New(problem.Recovering, "the hub knows no Env %s/%s yet, and waits to hear from %s",
			validate.Clip(namespace), validate.Clip(name), cmp.Or(strings.Join(awaited, ", "), "its clusters")).WithRetryAfter(awaitedAgain)
	}
	there := "that namespace has none"
	keys := slices.DeleteFunc(f.Keys(namespace), func(k segment.Key) bool { return !caller.SeesEnv(k.Namespace, k.Name) })
	if len(keys) > 0 {
		names := make([]string, 0, namedEnvs)
		for _, key := range keys[:min(len(keys), namedEnvs)] {
			names = append(names, key.Name)
		}
		there = "there are: " + strings.Join(names, ", ")
	}
	if more := len(keys) - namedEnvs; more > 0 {
		there += fmt.Sprintf(" and %d more", more)
	}
	return problem.New(problem.NotFound, "no Env %s/%s; %s", validate.Clip(namespace), validate.Clip(name), there)
}
