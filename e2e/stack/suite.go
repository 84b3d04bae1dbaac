// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/kind"
	"navix.sh/atoll/e2e/plane"
)

// RunSuite is the TestMain of a suite: it ends the process with run's result. run gets a context that Ctrl-C ends, a folder,
// and a folder for logs. Afterwards RunSuite searches the logs for crashes and unwanted lines. It removes the folder unless
// something failed.
func RunSuite(name string, run func(ctx context.Context, dir, logDir string) (code int, err error), unwanted ...Unwanted) {
	code, err := runSuite(name, run, unwanted)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runSuite(name string, run func(ctx context.Context, dir, logDir string) (int, error), unwanted []Unwanted) (code int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir, err := os.MkdirTemp("", "atoll-"+name+"-")
	if err != nil {
		return 1, fmt.Errorf("making a folder: %w", err)
	}
	logDir := filepath.Join(dir, "logs")
	code, err = run(ctx, dir, logDir)
	if err = errors.Join(err, CheckLogs(logDir, unwanted...)); code != 0 || err != nil {
		fmt.Fprintln(os.Stderr, "the programs' logs are kept in", logDir)
		return code, err
	}
	return 0, os.RemoveAll(dir)
}

// Prepare builds programs and starts planes at the same time. After an error, a caller takes down the set if there is one.
func Prepare(ctx context.Context, build func(context.Context) error, opts plane.Options, names ...string) (*plane.Set, error) {
	return prepare(ctx, build, func(ctx context.Context) (*plane.Set, error) { return plane.Up(ctx, opts, names...) })
}

// PrepareKind is Prepare for kind clusters: it makes archives of images and creates clusters at the same time, and then loads the images.
func PrepareKind(
	ctx context.Context, images func(context.Context) (archives []string, err error), opts kind.Options, names ...string,
) (*kind.Set, error) {
	var archives []string
	build := func(ctx context.Context) (err error) {
		archives, err = images(ctx)
		return err
	}
	set, err := prepare(ctx, build, func(ctx context.Context) (*kind.Set, error) { return kind.Up(ctx, opts, names...) })
	if err != nil {
		return set, err
	}
	return set, set.Load(ctx, archives...)
}

func prepare[T any](ctx context.Context, build func(context.Context) error, up func(context.Context) (T, error)) (set T, err error) {
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return build(groupCtx) })
	group.Go(func() (err error) {
		set, err = up(groupCtx)
		return err
	})
	if err := group.Wait(); err != nil {
		return set, fmt.Errorf("preparing: %w", err)
	}
	return set, nil
}

// Kubes are clients of all clusters' API servers, without a cache.
func (s *Stack) Kubes() (map[string]client.WithWatch, error) {
	kubes := map[string]client.WithWatch{}
	for _, id := range s.ids {
		var err error
		if kubes[id], err = s.Kube(id); err != nil {
			return nil, err
		}
	}
	return kubes, nil
}

// Kube is a client of a cluster's API server, without a cache.
func (s *Stack) Kube(cluster string) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("building the scheme: %w", err)
	}
	c, err := client.NewWithWatch(s.Cluster(cluster).Config(), client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("building a client of %s: %w", cluster, err)
	}
	return c, nil
}

// crashes are texts that no program's log may have, whatever the fault.
var crashes = []string{"WARNING: DATA RACE", "panic:", "Observed a panic", "fatal error:"}

// Unwanted reports a log line that a suite forbids, besides crashes.
type Unwanted func(file string, line []byte) bool

// CheckLogs returns an error for every crash in a folder's logs, and for every unwanted line.
func CheckLogs(dir string, unwanted ...Unwanted) error {
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(logs) == 0 {
		return errors.Join(err, fmt.Errorf("looking through the logs: %d in %s", len(logs), dir))
	}
	var errs []error
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("looking through the logs: %w", err)
		}
		file := filepath.Base(path)
		for line := range bytes.Lines(text) {
			if tellsCrash(line) || slices.ContainsFunc(unwanted, func(u Unwanted) bool { return u(file, line) }) {
				errs = append(errs, fmt.Errorf("%s: %s", file, bytes.TrimSpace(line)))
			}
		}
	}
	const most = 20
	if len(errs) > most {
		errs = append(errs[:most], fmt.Errorf("and %d more lines", len(errs)-most))
	}
	return errors.Join(errs...)
}

func tellsCrash(line []byte) bool {
	return slices.ContainsFunc(crashes, func(word string) bool { return bytes.Contains(line, []byte(word)) })
}
