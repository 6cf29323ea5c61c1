package main

import "syscall"

// endWithThread has the kernel kill the program when the thread that starts it
// ends: a killed process can't do it itself.
func endWithThread(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
