// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
)

// part measures a few figures. If it fails, or takes longer than limit, its results until then stay.
type part struct {
	name, group string
	limit       time.Duration
	measure     func(b *bench, ctx context.Context, add func(...result)) error
}

// bench runs parts.
type bench struct {
	size           size
	binDir, outDir string
	peerDir        string // a checkout; empty: none
	out            io.Writer
	doc            document

	group   string
	closers []func() error // of the group's shared set-up
	site    *site
	stock   *stock
	ground  *ground
}

// run runs the parts one after the other, and writes the results as each ends. It returns what failed or missed its target.
func (b *bench) run(ctx context.Context, wanted []part) error {
	fmt.Fprintf(b.out, "commit %s, load %.2f, etcd with fsync%s\n", b.doc.Commit, b.doc.Load, map[bool]string{true: ", quick"}[b.size.quick])
	for _, p := range wanted {
		if ctx.Err() != nil {
			break
		}
		if err := b.runPart(ctx, p); err != nil {
			return err
		}
	}
	return errors.Join(context.Cause(ctx), b.close(), b.doc.verdict(b.out))
}

// runPart fails only if the results cannot be written.
func (b *bench) runPart(ctx context.Context, p part) error {
	fmt.Fprintf(b.out, "\n%s:\n", p.name)
	began := time.Now()
	var results []result
	before, err := readCPU()
	if err == nil {
		err = b.measure(ctx, p, func(more ...result) { results = append(results, more...) })
	}
	after, cpuErr := readCPU()
	o := partResult{Name: p.name, Seconds: round(time.Since(began).Seconds())}
	o.use(after.since(before), time.Since(began), runtime.NumCPU())
	if err = errors.Join(err, cpuErr); err != nil {
		// The set-up may be broken; the next part of the group gets a new one.
		o.Error = errors.Join(err, b.close()).Error()
	}
	b.doc.end(o, results)
	b.doc.print(b.out)
	return b.doc.write(filepath.Join(b.outDir, "latest.json"))
}

func (b *bench) measure(ctx context.Context, p part, add func(...result)) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, p.limit, fmt.Errorf("it took longer than %s", p.limit))
	defer cancel()
	if p.group != b.group || p.group == "" {
		if err := b.close(); err != nil {
			return err
		}
		b.group = p.group
	}
	if err := p.measure(b, ctx, add); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// close ends the group's shared set-up.
func (b *bench) close() error {
	var errs []error
	for i := len(b.closers) - 1; i >= 0; i-- {
		errs = append(errs, b.closers[i]())
	}
	b.closers, b.site, b.stock, b.ground = nil, nil, nil, nil
	return errors.Join(errs...)
}

func (b *bench) logf(format string, args ...any) { fmt.Fprintf(b.out, "  "+format+"\n", args...) }

func (b *bench) logDir() string { return filepath.Join(b.outDir, "logs", b.group) }

// newStack starts a plane, a hub and a worker, which run until the group ends.
func (b *bench) newStack(ctx context.Context, opts plane.Options) (*plane.Plane, *stack.Stack, error) {
	return b.newStackOf(ctx, opts, stack.Options{})
}

// newPlanes starts planes, which run until the group ends.
func (b *bench) newPlanes(ctx context.Context, opts plane.Options, clusters ...string) (*plane.Set, error) {
	if err := errors.Join(os.RemoveAll(b.logDir()), os.MkdirAll(b.logDir(), 0o755)); err != nil {
		return nil, fmt.Errorf("preparing the logs' folder: %w", err)
	}
	opts.LogDir = filepath.Join(b.logDir(), "planes")
	set, err := plane.Up(ctx, opts, clusters...)
	if err != nil {
		return nil, fmt.Errorf("bringing up planes: %w", err)
	}
	b.closers = append(b.closers, func() error { return set.Down(context.Background()) })
	return set, nil
}

// newStackOf is newStack with options of the stack.
func (b *bench) newStackOf(ctx context.Context, opts plane.Options, of stack.Options) (*plane.Plane, *stack.Stack, error) {
	planes, atoll, err := b.newStackIn(ctx, opts, of, clusterID)
	if err != nil {
		return nil, nil, err
	}
	return planes[0], atoll, nil
}

// newStackIn is newStackOf with several clusters.
func (b *bench) newStackIn(
	ctx context.Context, opts plane.Options, of stack.Options, clusters ...string,
) ([]*plane.Plane, *stack.Stack, error) {
	set, err := b.newPlanes(ctx, opts, clusters...)
	if err != nil {
		return nil, nil, err
	}
	of.BinDir, of.LogDir = b.binDir, b.logDir()
	atoll, err := stack.Start(ctx, set, of)
	if err != nil {
		return nil, nil, fmt.Errorf("starting hub and workers: %w", err)
	}
	b.closers = append(b.closers, atoll.Close)
	return set.Planes(), atoll, nil
}

// child runs this program as one of a part's child processes.
func child(ctx context.Context, args []string) error {
	switch {
	case args[0] == bareCommand && len(args) == 5:
		return decodeOnly(args[1:])
	case args[0] == awayCommand && len(args) == 2:
		return playAway(ctx, args[1], os.Stdin, os.Stdout)
	case args[0] == proxyCommand && len(args) == 3:
		return serveProxy(args[1], args[2])
	default:
		return fmt.Errorf("arguments %q: none are valid", strings.Join(args, " "))
	}
}
