// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// orders are the fields by which a command can sort its items. Equal items stay in the server's order.
type orders[T any] map[string]func(a, b T) int

// by compares a field.
func by[T any, V cmp.Ordered](field func(T) V) func(a, b T) int {
	return func(a, b T) int { return cmp.Compare(field(a), field(b)) }
}

var envOrders = orders[*sandboxv1.Env]{
	"name": by(envName), "idle": by((*sandboxv1.Env).GetIdle), "running": by((*sandboxv1.Env).GetRunning),
	"desired": by((*sandboxv1.Env).GetDesired), "pending": by((*sandboxv1.Env).GetPending),
}

var clusterOrders = orders[*sandboxv1.Cluster]{
	"id": by((*sandboxv1.Cluster).GetId), "state": by(func(c *sandboxv1.Cluster) string { return c.GetState().String() }),
	"idle": by((*sandboxv1.Cluster).GetIdle), "running": by((*sandboxv1.Cluster).GetRunning),
	"desired": by((*sandboxv1.Cluster).GetDesired), "pending": by((*sandboxv1.Cluster).GetPending),
	"envs":         by((*sandboxv1.Cluster).GetEnvs),
	"lastSeen":     by(func(c *sandboxv1.Cluster) int64 { return c.GetLastSeen().AsDuration().Nanoseconds() }),
	"registeredAt": by(func(c *sandboxv1.Cluster) int64 { return c.GetRegisteredAt().AsTime().UnixNano() }),
}

func (o orders[T]) bind(cmd *cobra.Command, target *string) {
	cmd.Flags().StringVar(target, "sort-by", "", `order: `+o.names()+`, with " desc" for the reverse`)
}

func (o orders[T]) names() string { return strings.Join(slices.Sorted(maps.Keys(o)), ", ") }

// sort sorts items in place by the field in a flag. An empty flag leaves their order unchanged.
func (o orders[T]) sort(items []T, text string) error {
	words := strings.Fields(text)
	if len(words) == 0 {
		return nil
	}
	compare, known := o[words[0]]
	desc := len(words) == 2 && words[1] == "desc"
	if !known || len(words) > 1 && !desc {
		return invalidFlag("sort-by", text, "one of: "+o.names()+`; with " desc" for the reverse`)
	}
	slices.SortStableFunc(items, func(a, b T) int {
		if desc {
			a, b = b, a
		}
		return compare(a, b)
	})
	return nil
}
