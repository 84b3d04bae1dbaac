// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"
)

// column is one column of a table over T.
type column[T any] struct {
	header string
	wide   bool // only with -o wide
	age    bool // changes only with time
	value  func(T) string
}

// outputs are the formats of -o.
var outputs = []string{"table", "wide", "json", "yaml", "name"}

// tabular reports whether an output format is a table.
func tabular(output string) bool { return output == "table" || output == "wide" }

// view defines how a kind of object is printed.
type view[T proto.Message] struct {
	columns []column[T]
	name    func(T) string // -o name
	state   func(T) string // of --wait; may be nil
	final   func(T) error  // the error if the item can no longer change its state; may be nil
}

// showing returns the view with a column that is otherwise only in wide tables.
func (v view[T]) showing(header string) view[T] {
	v.columns = slices.Clone(v.columns)
	for i := range v.columns {
		v.columns[i].wide = v.columns[i].wide && v.columns[i].header != header
	}
	return v
}

// list prints items in the chosen format. json and yaml print whole, which is the response.
func (v view[T]) list(w io.Writer, output string, items []T, whole proto.Message) error {
	switch output {
	case "table", "wide":
		return v.table(w, output == "wide", items)
	case "name":
		for _, item := range items {
			fmt.Fprintln(w, v.name(item))
		}
		return nil
	default:
		return encode(w, output, whole)
	}
}

// all prints a list as the result of a command. If a table is empty it says so on stderr, which programs do not read.
func (v view[T]) all(cmd *cobra.Command, output, what string, items []T, whole proto.Message) error {
	if len(items) == 0 && tabular(output) {
		fmt.Fprintf(cmd.ErrOrStderr(), "no %s found\n", what)
	}
	return v.list(cmd.OutOrStdout(), output, items, whole)
}

// one prints a single item.
func (v view[T]) one(w io.Writer, output string, item T) error {
	return v.list(w, output, []T{item}, item)
}

func (v view[T]) table(w io.Writer, wide bool, items []T) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	row := func(cell func(column[T]) string) {
		var cells []string
		for _, c := range v.columns {
			if wide || !c.wide {
				cells = append(cells, cell(c))
			}
		}
		fmt.Fprintln(tw, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	row(func(c column[T]) string { return c.header })
	for _, item := range items {
		row(func(c column[T]) string { return dash(c.value(item)) })
	}
	return tw.Flush()
}

func encode(w io.Writer, output string, m proto.Message) error {
	data, err := protojson.MarshalOptions{EmitUnpopulated: false}.Marshal(m)
	if err != nil {
		return fmt.Errorf("encoding the response: %w", err)
	}
	// protojson varies its spacing on purpose; programs and golden files need it stable.
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
		return fmt.Errorf("encoding the response: %w", err)
	}
	if output != "json" && output != "yaml" {
		return invalidFlag("output", output, "one of: "+strings.Join(outputs, ", "))
	}
	return encodePlain(w, output, tree)
}

// encodePlain prints a value as JSON or YAML.
func encodePlain(w io.Writer, output string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	data = append(data, '\n')
	switch {
	case err != nil:
	case output == "yaml":
		data, err = yaml.JSONToYAML(data)
	case output != "json":
		return fmt.Errorf("--output %q is not valid here, want table, json or yaml", output)
	}
	if err != nil {
		return fmt.Errorf("encoding the response: %w", err)
	}
	_, err = w.Write(data)
	return err
}

func dash(s string) string { return cmp.Or(s, "-") }

func number[N int32 | uint64](n N) string { return fmt.Sprint(n) }

// ago formats a duration as kubectl formats ages.
func ago(d *durationpb.Duration) string {
	if d == nil {
		return ""
	}
	return short(d.AsDuration())
}

func since(now time.Time, t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return short(now.Sub(t.AsTime()))
}

// short formats a duration as kubectl formats ages, and below a second in milliseconds.
func short(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%dms", max(d.Milliseconds(), 0))
	}
	return duration.HumanDuration(d)
}
