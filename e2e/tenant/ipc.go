// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Constants of the kernel's headers that package unix lacks.
const (
	semGetVal = 12
	semSetVal = 16
	mqOpenAs  = 0o666
	maxData   = 256
)

type message struct {
	kind int64
	text [maxData]byte
}

// ipc leaves data in an object of the IPC namespace, or reads it, without removing it where possible.
func ipc(q url.Values) (any, error) {
	key, err := strconv.Atoi(q.Get("key"))
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	data, leave := q.Get("data"), q.Has("data")
	if len(data) >= maxData {
		return nil, fmt.Errorf("data: %d bytes are too many", len(data))
	}
	var f func(key int, data string, leave bool) (string, error)
	switch kind := q.Get("kind"); kind {
	case "shm":
		f = sharedMemory
	case "sem":
		f = semaphore
	case "msg":
		f = messageQueue
	case "mq":
		f = posixQueue
	default:
		return nil, fmt.Errorf("no kind %q", kind)
	}
	out, err := f(key, data, leave)
	if !leave && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOMSG) || errors.Is(err, unix.EAGAIN)) {
		err = fmt.Errorf("%w: %w", errNothing, err)
	}
	return out, err
}

func mode(leave bool) int {
	if leave {
		return unix.IPC_CREAT | 0o666
	}
	return 0
}

func sharedMemory(key int, data string, leave bool) (string, error) {
	id, err := unix.SysvShmGet(key, maxData, mode(leave))
	if err != nil {
		return "", err
	}
	segment, err := unix.SysvShmAttach(id, 0, 0)
	if err != nil {
		return "", err
	}
	if leave {
		copy(segment, data)
		segment[len(data)] = 0
		data = "left"
	} else {
		data = unix.ByteSliceToString(segment)
	}
	return data, unix.SysvShmDetach(segment)
}

func semaphore(key int, data string, leave bool) (string, error) {
	id, _, errno := unix.Syscall(unix.SYS_SEMGET, uintptr(key), 1, uintptr(mode(leave)))
	if errno != 0 {
		return "", errno
	}
	if leave {
		if _, _, errno = unix.Syscall6(unix.SYS_SEMCTL, id, 0, semSetVal, uintptr((data + "\x00")[0]), 0, 0); errno != 0 {
			return "", errno
		}
		return "left", nil
	}
	value, _, errno := unix.Syscall6(unix.SYS_SEMCTL, id, 0, semGetVal, 0, 0, 0)
	if errno != 0 {
		return "", errno
	}
	return string(rune(value)), nil
}

func messageQueue(key int, data string, leave bool) (string, error) {
	id, _, errno := unix.Syscall(unix.SYS_MSGGET, uintptr(key), uintptr(mode(leave)), 0)
	if errno != 0 {
		return "", errno
	}
	m := message{kind: 1}
	if leave {
		copy(m.text[:], data)
		_, _, errno = unix.Syscall6(unix.SYS_MSGSND, id, uintptr(unsafe.Pointer(&m)), uintptr(len(data)), unix.IPC_NOWAIT, 0, 0)
		if errno != 0 {
			return "", errno
		}
		return "left", nil
	}
	n, _, errno := unix.Syscall6(unix.SYS_MSGRCV, id, uintptr(unsafe.Pointer(&m)), maxData, 0, unix.IPC_NOWAIT, 0)
	if errno != 0 {
		return "", errno
	}
	return string(m.text[:n]), nil
}

func posixQueue(key int, data string, leave bool) (string, error) {
	name, err := unix.BytePtrFromString("tenant-" + strconv.Itoa(key))
	if err != nil {
		return "", err
	}
	flags := unix.O_RDWR | unix.O_NONBLOCK
	if leave {
		flags |= unix.O_CREAT
	}
	// Without attributes the queue takes messages of up to 8192 bytes.
	fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)), uintptr(flags), mqOpenAs, 0, 0, 0)
	if errno != 0 {
		return "", errno
	}
	buffer := make([]byte, 8192)
	if leave {
		n := copy(buffer, data)
		_, _, errno = unix.Syscall6(unix.SYS_MQ_TIMEDSEND, fd, uintptr(unsafe.Pointer(&buffer[0])), uintptr(n), 0, 0, 0)
		data = "left"
	} else {
		var n uintptr
		n, _, errno = unix.Syscall6(unix.SYS_MQ_TIMEDRECEIVE, fd, uintptr(unsafe.Pointer(&buffer[0])), uintptr(len(buffer)), 0, 0, 0)
		if errno == 0 {
			data = string(buffer[:n])
		}
	}
	if err := unix.Close(int(fd)); err != nil {
		return "", err
	}
	if errno != 0 {
		return "", errno
	}
	return data, nil
}
