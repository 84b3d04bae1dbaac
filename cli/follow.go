// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"k8s.io/utils/clock"

	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/wallclock"
)

// lookEvery is the interval between two polls of --watch and --wait.
const lookEvery = time.Second

// following are the flags of commands that show what changes.
type following struct {
	watch bool
	wait  string
}

func (f *following) bind(cmd *cobra.Command, states ...string) {
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "print what changes, until interrupted")
	bindEnum(cmd, cmd.Flags(), &f.wait, "wait", "", "return once all that is named is so: "+strings.Join(states, ", "), states...)
}

// fetched is what a command shows: items, and the response that contained them.
type fetched[T proto.Message] struct {
	items []T
	whole proto.Message
}

// display shows what fetch returns: once, when the state of --wait is reached, or whenever it changes.
type display[T proto.Message] struct {
	app   *app
	cmd   *cobra.Command
	view  view[T]
	fetch func(context.Context, clients) (fetched[T], error)
	print func(fetched[T]) error
	// gone returns the last state of an item that has left the list; nil: a message on stderr reports that the item is gone.
	gone func(context.Context, clients, T) (T, error)
	// stream reports changes to a listener until it cannot continue. If it is nil, or returns UNIMPLEMENTED of an older server, --watch polls
	// every second.
	stream func(context.Context, clients, listener[T]) error
}

// listener receives changes.
type listener[T any] struct {
	begin    func() // called before all current items are reported
	changed  func(item T, gone bool) error
	complete func() // called after all current items were reported
}

func (d display[T]) run(f following) error {
	return d.app.connect(d.cmd.Context(), func(c clients) error {
		switch {
		case f.wait != "":
			return d.await(c, f)
		case f.watch:
			return d.watch(c, nil)
		}
		got, err := d.look(c)
		if err != nil {
			return err
		}
		return d.print(got)
	})
}

func (d display[T]) look(c clients) (fetched[T], error) {
	ctx, cancel := context.WithTimeout(d.cmd.Context(), d.app.limit())
	defer cancel()
	return d.fetch(ctx, c)
}

// await polls until all items have reached a state.
func (d display[T]) await(c clients, f following) error {
	began := time.Now()
	for {
		got, err := d.look(c)
		if err != nil {
			return err
		}
		reached, others, err := d.reached(got, f.wait)
		if err != nil || reached {
			if printErr := d.print(got); err == nil {
				err = printErr
			}
			if err != nil || !f.watch {
				return err
			}
			return d.watch(c, &got)
		}
		if time.Since(began) > d.app.limit() {
			return problem.New(problem.Deadline, "not %s after %s: %s", f.wait, d.app.limit(), others)
		}
		if wallclock.Sleep(d.cmd.Context(), clock.RealClock{}, lookEvery) != nil {
			return d.cmd.Context().Err()
		}
	}
}

// reached reports whether all items are in a state, and describes those that are not. It returns an error if one can never reach it.
func (d display[T]) reached(got fetched[T], state string) (ok bool, others string, err error) {
	var not []string
	for _, item := range got.items {
		is := d.view.state(item)
		if strings.EqualFold(is, state) {
			continue
		}
		if d.view.final != nil {
			if err := d.view.final(item); err != nil {
				return false, "", err
			}
		}
		not = append(not, d.view.name(item)+" is "+strings.ToLower(is))
	}
	if len(got.items) == 0 {
		return false, "there is none", nil
	}
	return len(not) == 0, strings.Join(not, ", "), nil
}

// watch prints the items, and then each item that changes. Only an error of the first poll makes it fail.
func (d display[T]) watch(c clients, first *fetched[T]) error {
	if first == nil {
		got, err := d.look(c)
		if err != nil {
			return err
		}
		if err := d.print(got); err != nil {
			return err
		}
		first = &got
	}
	seen, items := d.rows(*first), d.byName(*first)
	if d.stream != nil {
		if err := d.follow(c, seen, items); problem.FromError(err) == nil || problem.FromError(err).Reason != problem.Unimplemented {
			return err
		}
	}
	troubled := false
	for wallclock.Sleep(d.cmd.Context(), clock.RealClock{}, lookEvery) == nil {
		got, err := d.look(c)
		if err != nil {
			if d.cmd.Context().Err() == nil && !troubled {
				reportError(d.cmd.ErrOrStderr(), err)
			}
			troubled = true
			continue
		}
		troubled = false
		now, named := d.rows(got), d.byName(got)
		for _, item := range got.items {
			if name := d.view.name(item); seen[name] != now[name] {
				if err := d.changed(item); err != nil {
					return err
				}
			}
		}
		for name, item := range items {
			if _, there := named[name]; !there {
				if err := d.showGone(c, item); err != nil {
					reportError(d.cmd.ErrOrStderr(), err)
				}
			}
		}
		seen, items = now, named
	}
	return nil
}

// follow prints each item whose change the server reports.
func (d display[T]) follow(c clients, seen map[string]string, items map[string]T) error {
	var there map[string]bool // what was told; nil once that is complete
	return d.stream(d.cmd.Context(), c, listener[T]{
		begin: func() { there = map[string]bool{} },
		changed: func(item T, gone bool) error {
			name := d.view.name(item)
			row := d.rows(fetched[T]{items: []T{item}})[name]
			if gone {
				delete(seen, name)
				delete(items, name)
				return d.changed(item)
			}
			if there != nil {
				there[name] = true
			}
			before, known := seen[name]
			seen[name], items[name] = row, item
			if known && before == row {
				return nil
			}
			return d.changed(item)
		},
		complete: func() {
			for name, item := range items {
				if there == nil || there[name] {
					continue
				}
				delete(seen, name)
				delete(items, name)
				if err := d.showGone(c, item); err != nil {
					reportError(d.cmd.ErrOrStderr(), err)
				}
			}
			there = nil
		},
	})
}

// showGone prints the last state of an item that has left the list.
func (d display[T]) showGone(c clients, item T) error {
	if d.gone == nil {
		fmt.Fprintf(d.cmd.ErrOrStderr(), "%s is gone\n", d.view.name(item))
		return nil
	}
	ctx, cancel := context.WithTimeout(d.cmd.Context(), shortCall)
	defer cancel()
	last, err := d.gone(ctx, c, item)
	if err != nil {
		return err
	}
	return d.changed(last)
}

func (d display[T]) byName(got fetched[T]) map[string]T {
	out := map[string]T{}
	for _, item := range got.items {
		out[d.view.name(item)] = item
	}
	return out
}

// rows returns, for each item, the cells that show changes. Ages do not.
func (d display[T]) rows(got fetched[T]) map[string]string {
	out := map[string]string{}
	for _, item := range got.items {
		var cells []string
		for _, column := range d.view.columns {
			if !column.age {
				cells = append(cells, column.value(item))
			}
		}
		out[d.view.name(item)] = strings.Join(cells, "\t")
	}
	return out
}

// changed prints one item without a header.
func (d display[T]) changed(item T) error {
	out := d.cmd.OutOrStdout()
	switch output := d.app.output; output {
	case "table", "wide":
		var table bytes.Buffer
		if err := d.view.table(&table, output == "wide", []T{item}); err != nil {
			return err
		}
		_, row, _ := strings.Cut(table.String(), "\n")
		_, err := fmt.Fprint(out, row)
		return err
	case "yaml":
		if _, err := fmt.Fprintln(out, "---"); err != nil {
			return err
		}
		return encode(out, output, item)
	default:
		return d.view.one(out, output, item)
	}
}
