// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"strings"
	"time"

	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/validate"
)

const (
	// namedEnvs bounds the number of Envs in an error.
	namedEnvs = 20
	// awaitedAgain is the retry delay for a hub that has just started.
	awaitedAgain = 2 * time.Second
)

// UnknownEnv returns the error for an Env that no cluster has. It names the Envs of the namespace. A hub that has just started may have no
// report of the Env yet; the error then names the clusters that it waits for.
func (f *Fleet) UnknownEnv(namespace, name string) error {
	if awaited := f.Awaited(); len(awaited) > 0 {
		return problem.New(problem.Recovering, "the hub knows no Env %s/%s yet, and waits to hear from %s",
			validate.Clip(namespace), validate.Clip(name), strings.Join(awaited, ", ")).WithRetryAfter(awaitedAgain)
	}
	there := "that namespace has none"
	keys := f.Keys(namespace)
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
