// SPDX-License-Identifier: Apache-2.0

package plane_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/wait"
)

// victimEnv makes the test binary bring up a plane in the directory it names, and wait to be killed.
const victimEnv = "ATOLL_PLANE_TEST_VICTIM"

// pauseArg makes it pause the API server, too.
const pauseArg = "pause"

func victim(dir string) int {
	set, err := plane.Up(context.Background(), plane.Options{Dir: dir}, "victim")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// It counts as one more process of the set, as its arguments name the directory.
	adopted := exec.Command("/bin/sh", "-c", "sleep 1000; exit", dir)
	set.Adopt(adopted)
	if err := adopted.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if len(os.Args) > 1 && os.Args[1] == pauseArg {
		if err := set.Plane("victim").Pause(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	fmt.Println(set.Plane("victim").Config().Host)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// startVictim returns when its plane is up, with the address of its API server.
func startVictim(t *testing.T, dir string, args ...string) (cmd *exec.Cmd, address string) {
	t.Helper()
	cmd = exec.CommandContext(testContext(t), os.Args[0], args...)
	cmd.Env = append(os.Environ(), victimEnv+"="+dir)
	cmd.Stderr = os.Stderr
	// A process group of its own, as a shell gives to what it runs.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	must.Succeed(t, err)
	t.Cleanup(func() { _ = stdin.Close() })
	stdout, err := cmd.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the victim did not come up: %v", err)
	}
	host, err := url.Parse(strings.TrimSpace(line))
	must.Succeed(t, err)
	return cmd, host.Host
}

// processesOf returns the living processes that mention a text in their arguments.
func processesOf(t *testing.T, text string) (pids []int) {
	t.Helper()
	cmdlines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must.Succeed(t, err)
	for _, path := range cmdlines {
		// A process that has ended, reaped or not, has no arguments.
		if cmdline, err := os.ReadFile(path); err == nil && bytes.Contains(cmdline, []byte(text)) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			must.Succeed(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

// sets counts the directories of sets.
func sets(dir string) (int, error) {
	entries, err := os.ReadDir(dir)
	found := 0
	for _, entry := range entries {
		if entry.IsDir() {
			found++
		}
	}
	return found, err
}

func nothingLeft(t *testing.T, dir, address string) error {
	t.Helper()
	left, err := sets(dir)
	if err != nil {
		return err
	}
	if running := len(processesOf(t, dir)); left > 0 || running > 0 {
		return fmt.Errorf("%d directories and %d processes are left", left, running)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return listener.Close()
}

func TestNothingOutlivesItsProcess(t *testing.T) {
	for name, end := range map[string]func(pid int) error{
		"killed":       func(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) },
		"group killed": func(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) },
		"interrupted":  func(pid int) error { return syscall.Kill(-pid, syscall.SIGINT) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			// A frozen process must go as well.
			cmd, address := startVictim(t, dir, pauseArg)
			if running := len(processesOf(t, dir)); running < 6 {
				t.Fatalf("only %d processes are running", running)
			}
			must.Succeed(t, end(cmd.Process.Pid))
			if err := cmd.Wait(); err == nil {
				t.Error("the victim ended in peace")
			}
			wait.For(t, patience, "everything to be gone", func(context.Context) error { return nothingLeft(t, dir, address) })
		})
	}
}

// The guard is killed with its owner, so only the next Up can clean up.
func TestNextUpRemovesWhatWasLeft(t *testing.T) {
	dir := t.TempDir()
	cmd, _ := startVictim(t, dir)
	killGuards(t, dir)
	must.Succeed(t, cmd.Process.Kill())
	_ = cmd.Wait()
	if running := len(processesOf(t, dir)); running < 6 {
		t.Fatalf("only %d processes are left to be found", running)
	}

	var log bytes.Buffer
	logs := t.TempDir()
	set, err := plane.Up(testContext(t), plane.Options{Dir: dir, Log: &log, LogDir: logs}, "next")
	must.Succeed(t, err)
	adopted := exec.Command("/bin/sh", "-c", "sleep 1000; exit", dir)
	set.Adopt(adopted)
	must.Succeed(t, adopted.Start())
	if left, err := sets(dir); err != nil || left != 1 {
		t.Errorf("%d sets are there beside the new one (%v)", left-1, err)
	}
	// The plane's five, the adopted shell and what that runs.
	if !strings.Contains(log.String(), "(7 processes)") {
		t.Errorf("progress does not tell of the cleaning up:\n%s", log.String())
	}
	address := strings.TrimPrefix(set.Plane("next").Config().Host, "https://")
	must.Succeed(t, set.Down(t.Context()))
	if err := adopted.Wait(); err == nil {
		t.Error("the adopted command ended in peace")
	}
	if err := nothingLeft(t, dir, address); err != nil {
		t.Errorf("after Down: %v", err)
	}
	if _, err := os.Stat(filepath.Join(logs, "next", "kube-apiserver.log")); err != nil {
		t.Errorf("the log was not kept: %v", err)
	}
}

func killGuards(t *testing.T, dir string) {
	t.Helper()
	guards := processesOf(t, "atoll-plane-guard\x00"+dir)
	for _, pid := range guards {
		must.Succeed(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	if len(guards) != 1 {
		t.Fatalf("%d guards were found", len(guards))
	}
}

func TestFailedUpLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	_, err := plane.Up(ctx, plane.Options{Dir: dir}, "late")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("want the deadline exceeded, got %v", err)
	}
	left, err := sets(dir)
	must.Succeed(t, err)
	if running := len(processesOf(t, dir)); left > 0 || running > 0 {
		t.Errorf("%d directories and %d processes are left", left, running)
	}
}

func TestUpSaysWhyAComponentDoesNotRun(t *testing.T) {
	bin := t.TempDir()
	if _, err := plane.Up(t.Context(), plane.Options{BinDir: bin}, "p"); err == nil || !strings.Contains(err.Error(), "kube-apiserver") {
		t.Errorf("without binaries: %v", err)
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kubectl"} {
		must.Succeed(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\necho the reason\nexit 1\n"), 0o755))
	}
	opts := plane.Options{BinDir: bin, Dir: t.TempDir(), Log: io.Discard}
	_, err := plane.Up(testContext(t), opts, "p")
	if err == nil || !strings.Contains(err.Error(), "keeps ending") || !strings.Contains(err.Error(), "the reason") {
		t.Errorf("with broken binaries: %v", err)
	}
}

func TestPausedAPIServerHangs(t *testing.T) {
	ctx := testContext(t)
	west := planes.Plane("west")
	client := shortClient(t, west)
	must.Succeed(t, west.Pause())
	_, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err == nil {
		t.Error("a paused API server answered")
	}
	if _, err := clientOf(t, planes.Plane("east")).CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("the other plane: %v", err)
	}
	must.Succeed(t, west.Resume())
	wait.For(t, patience, "an answer", func(context.Context) error {
		_, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return err
	})
}

func TestAPIServerComesBackAtTheSameAddress(t *testing.T) {
	ctx := testContext(t)
	west := planes.Plane("west")
	client := shortClient(t, west)
	namespace := newNamespace(ctx, t, client)
	pods := client.CoreV1().Pods(namespace)
	// This one is about to become Ready when the API server goes.
	_, err := pods.Create(ctx, newPod(imageA), metav1.CreateOptions{})
	must.Succeed(t, err)
	west.StopAPIServer()
	if _, err := pods.List(ctx, metav1.ListOptions{}); err == nil {
		t.Error("a stopped API server answered")
	}
	must.Succeed(t, west.StartAPIServer(ctx))
	_, err = pods.Create(ctx, newPod(imageA), metav1.CreateOptions{})
	must.Succeed(t, err)
	wait.For(t, patience, "both pods to be ready", func(context.Context) error {
		list, err := pods.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, pod := range list.Items {
			if err := ready(&pod); err != nil {
				return fmt.Errorf("%s: %w", pod.Name, err)
			}
		}
		return nil
	})
}

// shortClient does not wait long for an answer.
func shortClient(t *testing.T, p *plane.Plane) *kubernetes.Clientset {
	t.Helper()
	config := p.Config()
	config.Timeout = time.Second
	client, err := kubernetes.NewForConfig(config)
	must.Succeed(t, err)
	return client
}
