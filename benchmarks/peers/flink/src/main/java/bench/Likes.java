package bench;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/** W: a counter per key in keyed state, an output for every second event of a key. */
final class Likes {
    /** Plain objects with public fields: Flink's fastest serializer for objects. */
    public static class Like {
        public String liker;
        public String liked;
        public long ts;
    }

    public static class Count {
        public String who;
        public long n;
    }

    private Likes() {}

    static void build(StreamExecutionEnvironment environment) {
        environment.fromSource(Settings.source(new Json.Reader<>(Like.class)), WatermarkStrategy.noWatermarks(), "likes")
                .keyBy(like -> like.liked)
                .process(new Counter())
                .sinkTo(Settings.sink(new Json.Writer<>(Count.class, count -> count.who)));
    }

    private static final class Counter extends KeyedProcessFunction<String, Like, Count> {
        private transient ValueState<Long> state;
        private transient Count count;

        @Override
        public void open(OpenContext context) {
            state = getRuntimeContext().getState(new ValueStateDescriptor<>("counter", Long.class));
            count = new Count();
        }

        @Override
        public void processElement(Like like, Context context, Collector<Count> out) throws Exception {
            Long known = state.value();
            long n = known == null ? 1 : known + 1;
            state.update(n);
            if (n % 2 == 0) {
                count.who = like.liked;
                count.n = n;
                out.collect(count);
            }
        }
    }
}
