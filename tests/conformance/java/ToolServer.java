import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;

import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main classes of Kafka's tools, each in a thread of this one JVM: a JVM that starts costs
 * more than most tools do. The tools see their own arguments, input, output and exit.
 *
 * <p>Prints its port; its argument is the file that others find the port in. A request is the class and its arguments (a count, then length and UTF-8 of
 * each) and the input (length and bytes); the answer is the exit code, the output and the errors.
 * The process ends with its last connection.
 */
public final class ToolServer {
    private static final int IDLE_MS = 60_000;
    private static final InheritableThreadLocal<Tool> CURRENT = new InheritableThreadLocal<>();

    /** What a tool that exits is ended by; tools catch Exception, few catch more. */
    private static final class Exited extends Error {
        Exited() {
            super("exited", null, false, false);
        }
    }

    /**
     * Loads the consumers of the console anew for each run: they count their messages in a static field,
     * so of two that run at once each would stop when both together have read enough.
     */
    private static final class OwnStatics extends URLClassLoader {
        private static final String PREFIX = "org.apache.kafka.tools.consumer.";

        OwnStatics(Class<?> tool) {
            super(new URL[] {source(tool)}, tool.getClassLoader());
        }

        static Class<?> load(String name) throws ClassNotFoundException {
            Class<?> found = Class.forName(name);
            return name.startsWith(PREFIX) ? new OwnStatics(found).loadClass(name) : found;
        }

        private static URL source(Class<?> tool) {
            return tool.getProtectionDomain().getCodeSource().getLocation();
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!name.startsWith(PREFIX)) {
                return super.loadClass(name, resolve);
            }
            synchronized (getClassLoadingLock(name)) {
                Class<?> own = findLoadedClass(name);
                return own == null ? findClass(name) : own;
            }
        }
    }

    /** One run. Of what a tool prints after its exit only its shutdown hooks' words are kept. */
    private static final class Tool {
        final ByteArrayOutputStream out = new ByteArrayOutputStream();
        final ByteArrayOutputStream err = new ByteArrayOutputStream();
        final List<Runnable> hooks = new ArrayList<>();
        final InputStream in;
        Integer status;
        boolean hushed;

        Tool(byte[] input) {
            in = new ByteArrayInputStream(input);
        }

        synchronized void exit(int code) {
            if (status == null) {
                status = code;
                hushed = true;
            }
        }

        synchronized void print(boolean error, byte[] bytes, int offset, int length) {
            if (!hushed) {
                (error ? err : out).write(bytes, offset, length);
            }
        }

        void run(String name, String[] args) {
            CURRENT.set(this);
            try {
                OwnStatics.load(name).getMethod("main", String[].class).invoke(null, (Object) args);
            } catch (InvocationTargetException thrown) {
                if (!(thrown.getCause() instanceof Exited)) {
                    System.err.print("Exception in thread \"main\" ");
                    thrown.getCause().printStackTrace();
                    exit(1);
                }
            } catch (ReflectiveOperationException wrong) {
                System.err.println("Error: " + wrong);
                exit(1);
            }
            System.out.flush();
            System.err.flush();
            exit(0);
            hushed = false;
            for (Runnable hook : hooks) {
                hook.run();
            }
        }
    }

    /** System.out or System.err: each tool's own. */
    private static final class Printed extends OutputStream {
        private final PrintStream otherwise;
        private final boolean error;

        Printed(PrintStream otherwise, boolean error) {
            this.otherwise = otherwise;
            this.error = error;
        }

        @Override
        public void write(int one) {
            write(new byte[] {(byte) one}, 0, 1);
        }

        @Override
        public void write(byte[] bytes, int offset, int length) {
            Tool tool = CURRENT.get();
            if (tool == null) {
                otherwise.write(bytes, offset, length);
            } else {
                tool.print(error, bytes, offset, length);
            }
        }
    }

    /** System.in: each tool's own. */
    private static final class Typed extends InputStream {
        @Override
        public int read() throws IOException {
            Tool tool = CURRENT.get();
            return tool == null ? -1 : tool.in.read();
        }

        @Override
        public int read(byte[] bytes, int offset, int length) throws IOException {
            Tool tool = CURRENT.get();
            return tool == null ? -1 : tool.in.read(bytes, offset, length);
        }
    }

    private static byte[] bytes(DataInputStream from) throws IOException {
        byte[] found = new byte[from.readInt()];
        from.readFully(found);
        return found;
    }

    private static void serve(Socket socket) throws IOException {
        DataInputStream requests = new DataInputStream(socket.getInputStream());
        DataOutputStream answers = new DataOutputStream(socket.getOutputStream());
        while (true) {
            String[] words = new String[requests.readInt()];
            for (int i = 0; i < words.length; i++) {
                words[i] = new String(bytes(requests), StandardCharsets.UTF_8);
            }
            Tool tool = new Tool(bytes(requests));
            String[] args = new String[words.length - 1];
            System.arraycopy(words, 1, args, 0, args.length);
            Thread thread = new Thread(() -> tool.run(words[0], args), "main");
            thread.start();
            try {
                thread.join();
            } catch (InterruptedException impossible) {
                throw new IOException(impossible);
            }
            answers.writeInt(tool.status);
            for (ByteArrayOutputStream printed : List.of(tool.out, tool.err)) {
                answers.writeInt(printed.size());
                printed.writeTo(answers);
            }
            answers.flush();
        }
    }

    private static void exit(int status, String message) {
        Tool tool = CURRENT.get();
        if (tool == null) {
            Runtime.getRuntime().halt(status);
        }
        System.out.flush();
        tool.exit(status);
        throw new Exited();
    }

    public static void main(String[] args) throws IOException {
        ServerSocket listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        listener.setSoTimeout(IDLE_MS);
        System.out.println(listener.getLocalPort());
        System.out.flush();
        System.setOut(new PrintStream(new Printed(System.out, false), true));
        System.setErr(new PrintStream(new Printed(System.err, true), true));
        System.setIn(new Typed());
        Exit.setExitProcedure(ToolServer::exit);
        Exit.setHaltProcedure(ToolServer::exit);
        Exit.setShutdownHookAdder((name, hook) -> CURRENT.get().hooks.add(hook));
        AtomicInteger connections = new AtomicInteger();
        while (true) {
            Socket socket = listener.accept();
            listener.setSoTimeout(0);
            connections.incrementAndGet();
            Thread thread = new Thread(() -> {
                try (socket) {
                    serve(socket);
                } catch (EOFException closed) {
                    return;
                } catch (IOException broken) {
                    broken.printStackTrace();
                } finally {
                    if (connections.decrementAndGet() == 0) {
                        new File(args[0]).delete();
                        Runtime.getRuntime().halt(0);
                    }
                }
            });
            thread.setDaemon(true);
            thread.start();
        }
    }
}
