package bench;

import java.util.concurrent.CountDownLatch;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;

/** Runs the workload that the environment names, until it is told to stop. */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        var builder = new StreamsBuilder();
        if ("yahoo".equals(Settings.WORKLOAD)) {
            Ads.build(builder);
        } else {
            Likes.build(builder);
        }
        var failed = new CountDownLatch(1);
        var streams = new KafkaStreams(builder.build(), Settings.properties());
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            failed.countDown();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
        failed.await();
        System.exit(1);
    }
}
