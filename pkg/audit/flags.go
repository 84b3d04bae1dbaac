// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/utils/clock"
)

// Values of --audit.
const (
	toStdout = "stdout"
	toFile   = "file"
	toOTLP   = "otlp"
	strictly = "strict"
	toNone   = "none"
)

// Bounds of the flags. A batch of lines fits the smallest file.
const (
	minMegabytes, maxMegabytes = 4, 1 << 20
	minFiles, maxFiles         = 1, 1000
	minAge                     = time.Minute
)

// Flags specify where the audit is written. Without any value there is no audit.
type Flags struct {
	To        []string
	Megabytes int
	Files     int
	Age       time.Duration
}

// Nowhere returns Flags with which a process writes no audit by default.
func Nowhere() Flags { return Flags{To: []string{toNone}} }

// InDataDirectory reports whether lines go to a file of the data directory.
func (f *Flags) InDataDirectory() bool { return slices.Contains(f.To, toFile) }

// Bind registers the flags. The default is a file, or the values that f already has.
func (f *Flags) Bind(flags *pflag.FlagSet) {
	to := f.To
	if to == nil {
		to = []string{toFile}
	}
	flags.StringSliceVar(&f.To, "audit", to,
		"where to write what was done, a list of: file (audit/audit.log in the data directory), file:PATH, stdout, otlp (as traces are "+
			"sent); none. With strict among them a call that cannot be recorded is refused")
	flags.IntVar(&f.Megabytes, "audit-file-megabytes", 32, "size at which an audit file is rotated")
	flags.IntVar(&f.Files, "audit-files", 8, "how many rotated audit files are kept, compressed")
	flags.DurationVar(&f.Age, "audit-file-age", 24*time.Hour, "age at which an audit file is rotated")
}

// Validate returns an error that names every invalid value.
func (f *Flags) Validate() error {
	var errs []error
	sinks := 0
	for _, to := range f.To {
		kind, path, hasPath := strings.Cut(to, ":")
		switch {
		case kind == toFile && (!hasPath || path != ""), to == toStdout, to == toOTLP:
			sinks++
		case to == strictly, to == toNone:
		default:
			errs = append(errs, fmt.Errorf("--audit: %q is not valid, want file, file:PATH, stdout, otlp, strict or none", to))
		}
	}
	switch {
	case len(f.To) == 0:
		return nil
	case slices.Contains(f.To, toNone) && len(f.To) > 1:
		errs = append(errs, errors.New("--audit: none is not valid beside other values"))
	case slices.Contains(f.To, strictly) && sinks == 0:
		errs = append(errs, errors.New("--audit: strict is not valid alone, want it beside file, file:PATH, stdout or otlp"))
	}
	if f.Megabytes < minMegabytes || f.Megabytes > maxMegabytes {
		errs = append(errs, fmt.Errorf("--audit-file-megabytes: %d is not valid, want %d to %d", f.Megabytes, minMegabytes, maxMegabytes))
	}
	if f.Files < minFiles || f.Files > maxFiles {
		errs = append(errs, fmt.Errorf("--audit-files: %d is not valid, want %d to %d", f.Files, minFiles, maxFiles))
	}
	if f.Age < minAge {
		errs = append(errs, fmt.Errorf("--audit-file-age: %s is not valid, want %s or more", f.Age, minAge))
	}
	return errors.Join(errs...)
}

// Environment is what a process provides to its Log.
type Environment struct {
	DataDir string
	Replica string
	Clock   clock.WithTicker
	Metrics prometheus.Registerer
	Prefix  string // of the metrics' names; default atoll_hub
	// OTLP opens the sink of a collector.
	OTLP func(context.Context) (Sink, error)
	Log  logr.Logger
}

// Open returns a running Log, or nil if the flags request none.
func (f *Flags) Open(ctx context.Context, e Environment) (*Log, error) {
	if len(f.To) == 0 || slices.Contains(f.To, toNone) {
		return nil, nil // not requested
	}
	o := Options{Strict: slices.Contains(f.To, strictly), Replica: e.Replica, Clock: e.Clock, Log: e.Log}
	var err error
	if o.Metrics, err = NewMetrics(e.Metrics, cmp.Or(e.Prefix, "atoll_hub")); err != nil {
		return nil, err
	}
	for _, to := range f.To {
		if to == strictly {
			continue
		}
		sink, err := f.sink(ctx, to, e)
		if err != nil {
			for _, open := range o.Sinks {
				_ = open.Close()
			}
			return nil, fmt.Errorf("--audit %s: %w", to, err)
		}
		o.Sinks = append(o.Sinks, sink)
	}
	return New(o), nil
}

func (f *Flags) sink(ctx context.Context, to string, e Environment) (Sink, error) {
	switch kind, path, _ := strings.Cut(to, ":"); kind {
	case toStdout:
		return Stdout(os.Stdout), nil
	case toOTLP:
		return e.OTLP(ctx)
	default:
		if path == "" {
			path = filepath.Join(e.DataDir, "audit", "audit.log")
		}
		return File(FileOptions{Path: path, Megabytes: f.Megabytes, Files: f.Files, Age: f.Age, Clock: e.Clock})
	}
}
