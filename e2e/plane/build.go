// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// build compiles all binaries into dir, from this package's modules.
func build(ctx context.Context, dir string, log *progress) error {
	source, err := sourceDir()
	if err != nil {
		return err
	}
	for i, b := range binaries {
		done := log.during(fmt.Sprintf("building %s from %s (%d of %d)", b.name, b.pkg, i+1, len(binaries)))
		cmd := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, b.name), "-ldflags", ldflags(b), b.pkg)
		cmd.Dir = filepath.Join(source, "modules", b.module)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
		// The compiler's children end with it, and all of them end with ctx.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		out, err := cmd.CombinedOutput()
		done()
		if err != nil {
			return fmt.Errorf("building %s: %w\n%s", b.name, err, out)
		}
	}
	return nil
}

func ldflags(b binary) string {
	flags := []string{"-s", "-w"}
	if b.module == "kubernetes" {
		// Without these flags the API server reports v0.0.0, which clients refuse as too old.
		major, minor, _ := strings.Cut(strings.TrimPrefix(kubernetesVersion, "v"), ".")
		minor, _, _ = strings.Cut(minor, ".")
		for _, value := range []string{
			"gitVersion=" + kubernetesVersion, "gitMajor=" + major, "gitMinor=" + minor, "gitCommit=unknown", "gitTreeState=clean",
		} {
			flags = append(flags, "-X", "k8s.io/component-base/version."+value)
		}
	}
	return strings.Join(flags, " ")
}

// sourceDir returns this package's source directory. The modules of the binaries cannot be embedded; because a directory with a
// go.mod belongs to no other module.
func sourceDir() (string, error) {
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		if dir := filepath.Dir(file); isDir(dir) {
			return dir, nil
		}
	}
	// Compiled with -trimpath, or elsewhere: the working directory has to be in the module.
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", "navix.sh/atoll/e2e/plane").Output()
	if err != nil {
		return "", fmt.Errorf("looking for the source of package plane: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
