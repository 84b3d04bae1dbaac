// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package etcdtest

import "syscall"

func attributes() *syscall.SysProcAttr { return nil }
