// SPDX-License-Identifier: Apache-2.0

package hosted

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

const (
	scanInterval = 2 * time.Second
	// maxKubeconfig bounds the size of a file.
	maxKubeconfig = 1 << 20
	fileSuffix    = ".kubeconfig"
)

// Files is a Provider of the kubeconfig files NAME.kubeconfig in a directory.
type Files struct {
	Dir   string
	Clock clock.WithTicker
	Log   logr.Logger

	followed
}

var (
	_ multicluster.Provider         = &Files{}
	_ multicluster.ProviderRunnable = &Files{}
)

// Start implements multicluster.ProviderRunnable.
func (f *Files) Start(ctx context.Context, host multicluster.Aware) error {
	ticker := f.Clock.NewTicker(scanInterval)
	defer ticker.Stop()
	var last string
	for {
		// Log an error once, not every two seconds.
		if err := f.scan(ctx, host); err == nil {
			last = ""
		} else if err.Error() != last {
			last = err.Error()
			f.Log.Error(err, "Some kubeconfigs cannot be used")
		}
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return nil
		}
	}
}

// scan engages new and changed clusters, and ends those that are gone. A directory that cannot be read ends none (I5).
func (f *Files) scan(ctx context.Context, host multicluster.Aware) error {
	entries, err := os.ReadDir(f.Dir)
	if err != nil {
		return fmt.Errorf("reading --provider-dir: %w", err)
	}
	var errs []error
	there := map[multicluster.ClusterName]bool{}
	for _, entry := range entries {
		name, ok := strings.CutSuffix(entry.Name(), fileSuffix)
		if !ok || name == "" {
			continue
		}
		there[multicluster.ClusterName(name)] = true
		data, err := readBounded(filepath.Join(f.Dir, entry.Name()))
		if err == nil {
			err = f.take(ctx, host, multicluster.ClusterName(name), data)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", entry.Name(), err))
		}
	}
	for _, name := range f.names() {
		if !there[name] {
			f.end(name)
		}
	}
	return errors.Join(errs...)
}

func readBounded(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxKubeconfig+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxKubeconfig {
		return nil, fmt.Errorf("has more than %d bytes", maxKubeconfig)
	}
	return data, nil
}
