// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// programName is the name of a binary in its image: that of the project's archives, else that of the package.
func programName(s spec) string {
	if strings.HasPrefix(s.file, "atoll-") {
		return s.file
	}
	return path.Base(s.pkg)
}

// compile builds a static binary for Linux. It names no folder of this machine, and the version is the only thing it is
// told: what Go finds out by itself about the checkout differs between a clone and an export of it.
func compile(ctx context.Context, o options, pkg, to string) error {
	to, err := filepath.Abs(to)
	if err != nil {
		return fmt.Errorf("resolving %s: %w", to, err)
	}
	ldflags := "-s -w -X navix.sh/atoll/pkg/version.Version=" + o.version
	args := []string{"build", "-trimpath", "-buildvcs=false", "-o", to}
	cgo := "0"
	if o.race {
		// The race detector is C; linked statically it runs without a C library in the image. What is lost is the C
		// library's way of looking up names, which Go does itself.
		args, cgo = append(args, "-race"), "1"
		ldflags += " -linkmode external -extldflags -static"
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "-ldflags", ldflags, pkg)...)
	cmd.Dir = o.root
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+o.arch, "CGO_ENABLED="+cgo, "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", pkg, err, out)
	}
	return nil
}
