// SPDX-License-Identifier: Apache-2.0

package etcdtest

import "syscall"

// attributes have the kernel end an etcd whose test was killed.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
